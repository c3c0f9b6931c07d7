"""The steps of torch's benchmark recipe, written from the documented API; the prefix of the imports is torch's."""

from __future__ import annotations

import pickle
import re
import timeit
from itertools import product

import torch
import torch.utils.benchmark as benchmark
from torch.utils.benchmark import Compare, FuzzedParameter, FuzzedTensor, Fuzzer, ParameterAlias, Timer
from torch.utils.benchmark.op_fuzzers.binary import BinaryOpFuzzer
from torch.utils.benchmark.op_fuzzers.sparse_unary import UnaryOpSparseFuzzer
from torch.utils.benchmark.op_fuzzers.spectral import SpectralOpFuzzer
from torch.utils.benchmark.op_fuzzers.unary import UnaryOpFuzzer
from torch.utils.cpp_extension import load_inline

sizes = [1, 64, 1024, 10000]
threads = [1, 4, 16, 32]
min_run_time = 1


# ---- 1. two ways to compute a batched dot product
def batched_dot_mul_sum(a, b):
    return a.mul(b).sum(-1)


def batched_dot_bmm(a, b):
    rows = a.reshape(-1, 1, a.shape[-1])
    columns = b.reshape(-1, b.shape[-1], 1)
    return torch.bmm(rows, columns).flatten(-3)


x = torch.randn(10000, 64)
torch.testing.assert_close(batched_dot_mul_sum(x, x), batched_dot_bmm(x, x))

# ---- 2. timeit tells the time of all runs, Timer the time of one
for name in ("mul_sum", "bmm"):
    arguments = {
        "stmt": f"batched_dot_{name}(x, x)",
        "setup": f"from __main__ import batched_dot_{name}",
        "globals": {"x": x},
    }
    total = timeit.Timer(**arguments).timeit(100)
    measured = Timer(**arguments).timeit(100)
    print(f"{name}: {total / 100 * 1e6:>5.1f} us", measured)
    assert measured.number_per_run == 100
    assert len(measured.raw_times) == 1
    assert "1 thread" in repr(measured)  # whatever torch's own setting is

# ---- 3. threads, labels
num_threads = torch.get_num_threads()
t0 = Timer(
    stmt="batched_dot_mul_sum(x, x)",
    setup="from __main__ import batched_dot_mul_sum",
    globals={"x": x},
    num_threads=num_threads,
    label="Multithreaded batch dot",
    sub_label="Implemented using mul and sum",
)
t1 = Timer(
    stmt="batched_dot_bmm(x, x)",
    setup="from __main__ import batched_dot_bmm",
    globals={"x": x},
    num_threads=num_threads,
    label="Multithreaded batch dot",
    sub_label="Implemented using bmm",
)
print(t0.timeit(100))
print(t1.timeit(100))
assert torch.get_num_threads() == num_threads

# ---- 4. on a device: the first run warms up, the clock waits for the device
device = "cuda" if torch.cuda.is_available() else "cpu"
on_device = torch.randn(10000, 1024, device=device)
for name in ("mul_sum", "bmm"):
    timer = Timer(f"batched_dot_{name}(x, x)", f"from __main__ import batched_dot_{name}", globals={"x": on_device})
    print(timer.timeit(10))
    print(timer.timeit(10))

# ---- 5. blocked autorange
m0 = t0.blocked_autorange()
m1 = t1.blocked_autorange()
print(m0, m1, sep="\n")
print(f"Mean:   {m0.mean * 1e6:6.2f} us", f"Median: {m0.median * 1e6:6.2f} us")
assert m0.mean > 0
assert sum(m0.raw_times) >= 0.2

# ---- 6. a table over sizes and threads
results = []
for b, n in product(sizes, sizes):
    label = "Batched dot"
    sub_label = f"[{b}, {n}]"
    x = torch.ones((b, n))
    for num_threads in threads:
        for name in ("mul_sum", "bmm"):
            results.append(  # noqa: PERF401
                Timer(
                    stmt=f"batched_dot_{name}(x, x)",
                    setup=f"from __main__ import batched_dot_{name}",
                    globals={"x": x},
                    num_threads=num_threads,
                    label=label,
                    sub_label=sub_label,
                    description="mul/sum" if name == "mul_sum" else name,
                ).blocked_autorange(min_run_time=min_run_time)
            )
compare = Compare(results)
compare.print()
table = str(compare)
assert all(f"{count} threads: ---" in table for count in threads)
assert "mul/sum" in table
compare.trim_significant_figures()
compare.colorize()
compare.print()
assert "\033[92m" in str(compare)

# ---- 7. measurements of two environments, saved by the process of each, as one table
by_env = []
for env, name in (("environment A: mul/sum", "mul_sum"), ("environment B: bmm", "bmm")):
    for b, n in ((1, 1), (1024, 64), (64, 1)):
        x = torch.ones((b, n))
        by_env.append(
            pickle.dumps(
                Timer(
                    "batched_dot(x, x)",
                    f"from __main__ import batched_dot_{name} as batched_dot",
                    globals={"x": x},
                    num_threads=1,
                    label="Batched dot",
                    description=f"[{b}, {n}]",
                    env=env,
                ).blocked_autorange(min_run_time=min_run_time)
            )
        )
measurements = [pickle.loads(data) for data in by_env]
compare = Compare(measurements)
compare.trim_significant_figures()
compare.colorize()
compare.print()
assert "(environment A: mul/sum)" in str(compare)
again = Compare(pickle.loads(pickle.dumps(measurements)))
again.trim_significant_figures()
again.colorize()
assert str(again) == str(compare)  # nothing is lost on the way

# ---- 8. inputs from a fuzzer
example_fuzzer = Fuzzer(
    parameters=[
        FuzzedParameter("k0", minval=1, maxval=10000, distribution="loguniform"),
        FuzzedParameter("k1", minval=1, maxval=10000, distribution="loguniform"),
    ],
    tensors=[FuzzedTensor("x", size=("k0", "k1"), min_elements=128, max_elements=10000000, probability_contiguous=0.6)],
    seed=0,
)
results = []
for tensors, tensor_params, params in example_fuzzer.take(10):
    shown = tensor_params["x"]
    sub_label = f"{params['k0']:<6} x {params['k1']:<4} {'' if shown['is_contiguous'] else '(discontiguous)'}"
    assert {"numel", "order", "steps", "is_contiguous", "dtype"} <= shown.keys()
    results += [
        Timer(
            stmt=f"batched_dot_{name}(x, x)",
            setup=f"from __main__ import batched_dot_{name}",
            globals=tensors,
            label="Batched dot",
            sub_label=sub_label,
            description=name,
        ).blocked_autorange(min_run_time=min_run_time / 10)
        for name in ("mul_sum", "bmm")
    ]
compare = Compare(results)
compare.trim_significant_figures()
compare.print()

# ---- 9. fuzzers that are there already, and a parameter that follows another
results = []
for tensors, _, _ in BinaryOpFuzzer(seed=0).take(5):
    results.append(
        Timer(
            stmt="torch.add(x, y)",
            globals=tensors,
            label="add",
            sub_label=str(tuple(tensors["x"].shape)),
            description="time",
        ).blocked_autorange(min_run_time=min_run_time / 10)
    )
Compare(results).print()
for fuzzer in (UnaryOpFuzzer(seed=0), SpectralOpFuzzer(seed=0), UnaryOpSparseFuzzer(seed=0)):
    ((tensors, _, _),) = fuzzer.take(1)
    assert torch.is_tensor(tensors["x"])
square_or_flat = Fuzzer(
    parameters=[
        FuzzedParameter("k0", minval=16, maxval=1024, distribution="uniform"),
        FuzzedParameter("k1", distribution={ParameterAlias("k0"): 0.5, 1: 0.5}),
    ],
    tensors=[FuzzedTensor("x", size=("k0", "k1"))],
    seed=0,
)
assert all(params["k1"] in (1, params["k0"]) for _, _, params in square_or_flat.take(5))

# ---- 10. C++ functions: the same by value and by reference, timed and counted
source = """
    at::Tensor mul_sum(VARIANT a, VARIANT b) { return (a * b).sum(-1); }
"""
by_value = source.replace("mul_sum", "by_value").replace("VARIANT", "at::Tensor")
by_reference = source.replace("mul_sum", "by_reference").replace("VARIANT", "const at::Tensor&")
both = ["by_value", "by_reference"]
cpp_lib = load_inline("cpp_lib", [by_value + by_reference], extra_cflags=["-O3"], functions=both)
module_import_str = f"""
import importlib.util
spec = importlib.util.spec_from_file_location("cpp_lib", {cpp_lib.__file__!r})
cpp_lib = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cpp_lib)"""
counts = []
for name in both:
    timer = Timer(
        f"cpp_lib.{name}(x, x)",
        setup=f"{module_import_str}\nx = torch.ones((1, 64))",
        label="C++ batched dot",
        description=name,
    )
    print(timer.blocked_autorange(min_run_time=min_run_time))
    stats = timer.collect_callgrind(number=100, repeats=10)
    assert isinstance(stats, tuple)
    assert len(stats) == 10
    counts.append(stats)
assert len({one.counts() for one in counts[0]}) == 1
delta = counts[0][0].delta(counts[1][0])
torch.set_printoptions(linewidth=120)
print(delta.denoise(), counts[0][0].counts(), counts[1][0].counts())
assert len(delta) > 0


def renamed(line):
    for before, after in (
        (r"\(.*\)", ""),
        (r"c10::intrusive_ptr<.+>", "c10::intrusive_ptr<...>"),
        (re.escape("operator="), "assignment"),
    ):
        line = re.sub(before, after, line)
    return line


print(delta.denoise().transform(renamed))
assert all(len(line) <= 120 for line in repr(delta.transform(renamed)).splitlines()[1:])
assert benchmark.Timer is Timer
