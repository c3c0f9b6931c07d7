"""The steps of torch's quick start of ``Timer``, written from the documented API; the imports name torch."""

from __future__ import annotations

import os
import pickle
import re
import tempfile

import torch
from torch.utils.benchmark import CallgrindStats, FunctionCounts, Language, Measurement, Timer

# ---- a timer is defined by statement, setup, globals and a number of threads; torch is there without an import
timer = Timer(
    stmt="x * y",
    setup="""
        x = torch.ones((128,))
        y = torch.ones((128,))
    """,
)
with_globals = Timer("x * y", globals={"x": torch.ones((128,)), "y": torch.ones((128,))}, num_threads=2)

# ---- wall times
measured = timer.blocked_autorange(min_run_time=0.5)
print(measured)
assert isinstance(measured, Measurement)
assert measured.median > 0
assert measured.iqr >= 0
assert measured.number_per_run * len(measured.times) > 100
assert ("IQR" in repr(measured)) == (len(measured.times) >= 4)
assert "1 thread" in repr(measured)
assert "2 threads" in repr(with_globals.blocked_autorange(min_run_time=0.1))
if measured.has_warnings:
    assert "WARNING: Interquartile range" in repr(measured)

# ---- the same in C++
cpp_timer = Timer(
    "x * y;",
    """
        auto x = torch::ones({128});
        auto y = torch::ones({128});
    """,
    language="cpp",
)
in_cpp = cpp_timer.blocked_autorange(min_run_time=0.5)
print(in_cpp)
assert in_cpp.median > 0

# ---- instruction counts, in Python and in C++
stats = timer.collect_callgrind()
cpp_stats = cpp_timer.collect_callgrind()
print(stats)
print(cpp_stats)
assert isinstance(stats, CallgrindStats)
assert stats.counts(denoise=True) <= stats.counts()
assert 0 < stats.baseline_exclusive_stats.sum() < stats.counts() / 10
assert 0 < cpp_stats.counts() < stats.counts()
assert stats.number_per_run == 100
if not stats.built_with_debug_symbols:
    assert "PyTorch was not built with debug symbols" in repr(stats)

# ---- details: by function, inclusive and exclusive, standardized, grouped by file
inclusive_stats = stats.as_standardized().stats(inclusive=False)
print(inclusive_stats[:10])
assert isinstance(inclusive_stats, FunctionCounts)
assert len(inclusive_stats[:10]) == 10
assert next(iter(stats.stats(inclusive=True))).count >= next(iter(stats.stats(inclusive=False))).count


def group_by_file(function_name):
    pattern = re.compile(r"(.+\.(?:cpp|h|c|hpp)):")
    found = pattern.search(function_name)
    return found.group(1) if found else function_name.partition(":")[0]


by_file = inclusive_stats.transform(group_by_file)
print(by_file[:10])
assert by_file.sum() == inclusive_stats.sum()  # the counts of equal names add up
assert len(by_file) < len(inclusive_stats)

# ---- A/B: broadcasting a column against an element-wise product
broadcasting_stats = Timer(
    "x * y",
    """
        x = torch.ones((128, 128))
        y = torch.ones((128, 1))
    """,
).collect_callgrind()
elementwise_stats = Timer(
    "x * y",
    """
        x = torch.ones((128, 128))
        y = torch.ones((128, 128))
    """,
).collect_callgrind()

# ---- stats of two environments, each saved by its own process, are compared in a third
folder = tempfile.mkdtemp()
paths = [os.path.join(folder, name) for name in ("a.pkl", "b.pkl")]
for path, collected in zip(paths, (broadcasting_stats, elementwise_stats), strict=True):
    with open(path, "wb") as file:
        pickle.dump(collected, file)
loaded = []
for path in paths:
    with open(path, "rb") as file:
        loaded.append(pickle.load(file))
    os.unlink(path)
os.rmdir(folder)
broadcasting, elementwise = (one.as_standardized() for one in loaded)
delta = broadcasting.delta(elementwise)
print(delta)
assert delta.sum() == broadcasting_stats.counts() - elementwise_stats.counts()
assert (broadcasting.stats() - elementwise.stats()).sum() == delta.sum()


def extract_function_name(line):
    return re.sub(r"\(.*", "", line.partition(":")[2])


named = delta.transform(extract_function_name)
print(named)
assert named.sum() == delta.sum()
iterator = named.filter(lambda name: "TensorIterator" in name)
print(iterator)
assert all("TensorIterator" in function for _, function in iterator)

# ---- where times vary too much: measure for longer, or in C++
longer = Timer("torch.empty(())").blocked_autorange(min_run_time=2)
in_cpp = Timer("torch::empty({0});", language=Language.CPP).blocked_autorange(min_run_time=1)
print(longer, in_cpp, sep="\n")
assert sum(longer.raw_times) >= 2
