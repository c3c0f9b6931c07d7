"""The examples, run from top to bottom in a kernel of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from tests.kernel.conftest import by_files
from torchbench_magic.process.machine import usable_cores
from torchbench_magic.timing.verdict import DRIFT

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str, folder: Path, patience: int = 240, then: str = "") -> list[str]:
    """What each code cell showed as text, printed output included, and a cell with ``then``, if given; one that
    fails ends the test."""
    book = nbformat.read(EXAMPLES / name, as_version=4)
    book.cells += [nbformat.v4.new_code_cell(then)] if then else []
    client = NotebookClient(
        book, timeout=patience, kernel_name="python3", resources={"metadata": {"path": str(folder)}}, config=by_files()
    )
    try:
        client.execute()
    except CellExecutionError as error:
        error.add_note("\n".join(map(_shown, book.cells)))  # what cells before it showed may be the reason
        raise
    return [_shown(cell) for cell in book.cells if cell.cell_type == "code"]


def _shown(cell: Any) -> str:
    outputs = [output for output in cell.get("outputs", ()) if output["output_type"] != "error"]
    parts = [o["text"] if o["output_type"] == "stream" else o["data"].get("text/plain", "") for o in outputs]
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(parts))


@pytest.mark.kernel
@pytest.mark.timeout(280)
def test_the_benchmark_recipe_shows_every_step(tmp_path: Path) -> None:
    shown = run("02_benchmark_recipe.ipynb", tmp_path)
    everything = "\n".join(shown)
    assert "UsageError" not in everything, "a magic that refuses its line does not stop the notebook"
    checked, timeit, waiting, threads, autorange, sizes, compare, swap, first, second, back, draws, fuzzed, binary = (
        shown[1:]
    )
    assert "mul_sum" in checked
    assert "at 1 thread" in timeit
    assert "waiting for it" in waiting
    assert "first_call" in waiting
    assert "speed-up" in threads
    assert "blocks of" in autorange
    assert "IQR" in autorange
    assert sizes.count("baseline") == 18
    is_folded = re.search(r"\d+ more: \S+warnings", sizes) is not None  # a busy machine has two doubts before it
    assert ("Oversubscribed" in sizes) == (usable_cores() < 4) or is_folded
    assert "[------" in compare
    assert "b=1024, n=64" in compare
    assert swap.count("baseline") == 7
    assert "batched_dot(x, x)" in first
    assert "A: mul/sum" in second
    assert "B: bmm" in second
    if "undecided" not in second:  # one window on either side decides only what no drift explains
        row = re.search(r"([\d.]+) +([\d.]+) … ([\d.]+) +(?:faster|slower)", second)
        assert row is not None
        assert not 1 / DRIFT < float(row[1]) < DRIFT
        assert "the most that machine drift alone does" in " ".join(second.split())
    assert "Batched dot: b=1, n=1" in back
    assert draws.count("is_contiguous") == 3
    assert fuzzed.count("baseline") == 10
    assert "discontiguous" in fuzzed
    assert binary.count("baseline") == 3


@pytest.mark.kernel
@pytest.mark.valgrind
@pytest.mark.timeout(900)
@pytest.mark.skipif(not (shutil.which("valgrind") and shutil.which("g++")), reason="needs valgrind and g++")
def test_the_instruction_counts_show_every_step(tmp_path: Path) -> None:
    shown = run("03_instruction_counts.ipynb", tmp_path, patience=600)
    assert "UsageError" not in "\n".join(shown), "a magic that refuses its line does not stop the notebook"
    counted, by_file, by_function, cpp, cpp_read, environments, inline, delta = shown[1:]
    assert "more instructions per call than same_shape" in counted
    assert "at::TensorIteratorBase::compute_strides" in counted
    assert "total without allocator and lookup" in counted
    assert "libtorch_cpu.so" in by_file
    assert re.search(r"TensorIterator: \+[\d,]+ of \+[\d,]+ instructions per call", by_function)
    assert "at::TensorIteratorBase::reorder_dimensions" in by_function
    assert "more instructions per call than same_shape" in cpp
    both = re.search(r"TensorIterator: \+([\d,]+) from Python, \+([\d,]+) from C\+\+", cpp_read)
    assert both is not None
    python, cpp_delta = (int(text.replace(",", "")) for text in both.groups())
    assert abs(python - cpp_delta) < 0.2 * python, "what torch does does not depend on who asks for it"
    assert "another process" in environments
    assert "as many instructions" in environments
    assert len(inline.split()) == 2
    by_reference = re.search(r"by reference: ([+-][\d.]+) instructions per call", delta)
    assert by_reference is not None
    assert -1000 < float(by_reference[1]) < 0, "no copies of the two handles"
    assert "FunctionCounts" in delta


@pytest.mark.timeout(280)
@pytest.mark.skipif(not (shutil.which("g++") and shutil.which("ninja")), reason="needs g++ and ninja")
def test_the_extension_of_the_counts_is_built_where_torch_lies_in_a_folder_with_a_space(tmp_path: Path) -> None:
    """Torch's own linker flag does not quote its folder; the notebook's cell does."""
    site = tmp_path / "a space" / "site-packages"
    site.parent.mkdir()
    site.symlink_to(Path(torch.__file__).parents[1])
    cells = {cell.get("id"): cell.source for cell in nbformat.read(EXAMPLES / "03_instruction_counts.ipynb", 4).cells}
    build = cells["load-inline"].partition("setup = ")[0]
    code = f"import shlex, torch\nfrom torch.utils import cpp_extension\n{build}\nprint(torch.__file__)\n"
    code += "print(library.dot_by_value(torch.ones(2, 2), torch.ones(2, 2)).tolist())"
    environment = {**os.environ, "PYTHONPATH": str(site), "TORCH_EXTENSIONS_DIR": str(site.parent / "built")}
    environment["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])  # ninja is there
    done = subprocess.run([sys.executable, "-P", "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split("\n")[-3:-1] == [str(site / "torch" / "__init__.py"), "[2.0, 2.0]"]


@pytest.mark.kernel
@pytest.mark.timeout(280)
def test_the_profiler_recipe_shows_every_step(tmp_path: Path) -> None:
    shown = run("04_profiler_recipe.ipynb", tmp_path)
    everything = "\n".join(shown)
    assert "UsageError" not in everything
    model, time, shapes, table, memory, files, stacks, flame, _, cycles, steps, _, micro = shown
    assert "[5, 10]" in model
    assert "model_inference" in time
    assert "In[1], Residual.forward" in time
    assert "input shapes" in shapes
    assert "Self CPU %" in table
    assert "input_shapes" in table
    assert "model." in table
    assert "peak" in memory
    assert "KiB of trace" in files
    assert "MainThread;In[5]:2 outputs = model(inputs)" in files
    assert "← In[1]:2" in stacks
    assert "Where the time of In[7] goes" in flame
    assert "steps (3, 4): " in cycles
    assert "steps (7, 8): " in cycles
    assert "steps 3, 4, 7 and 8 recorded" in " ".join(cycles.split())
    assert "loss.backward()" in cycles
    assert "steps 2 and 3 recorded" in " ".join(steps.split())
    assert "[[8, 128, 32], [8, 32, 128]]" in micro
    assert "[[8, 128, 128], [8, 128, 32]]" in micro
    assert "torch.ops.aten.bmm" in micro, "the code that ran"
    assert "median" in micro


@pytest.mark.kernel
@pytest.mark.timeout(400)
def test_profile_your_module_follows_the_copy_of_the_mask(tmp_path: Path) -> None:
    shown = run("05_profile_your_module.ipynb", tmp_path, patience=300)
    everything = "\n".join(shown)
    assert "UsageError" not in everything
    double, copied, single, nonzero, figures, host, timed, tutorial = shown[1:]
    assert "uses NumPy instead of torch" in double or "Busy machine" in double, "silent where others compute"
    assert "the copy: 61.04 MiB; the mask itself: 61.04 MiB" in copied, "200 ** 3 doubles"
    assert "1.0" in copied or "0.99" in copied, "all of aten::copy_ is that line"
    assert "peak 30.5 MiB" in single
    assert "uses NumPy instead of torch" not in nonzero
    assert "copy of a double mask: 61.04 MiB" in figures
    assert "copy of a float mask:  30.52 MiB" in figures
    left = re.search(r"no copy: +([\d.]+) MiB = bool mask 7.63 \+ indices ([\d.]+) \(24 B × (\d+) hits\)", figures)
    assert left is not None
    assert float(left[2]) == pytest.approx(24 * int(left[3]) / 2**20, abs=0.01)
    assert float(left[1]) == pytest.approx(7.63 + float(left[2]), abs=0.02)
    assert "Python peak" in host
    assert "ns slower" in host
    assert all(name in timed for name in ("double mask", "float mask", "nonzero", "baseline"))
    size = re.search(r"(\d+) x \d+ x \d+: the copy takes ([\d.]+) MiB", tutorial)
    assert size is not None
    assert (size[1], size[2]) in (("500", "953.67"), ("200", "61.04"))


@pytest.mark.kernel
@pytest.mark.timeout(500)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads are looked at in /proc")
def test_cpu_performance_goes_from_slow_to_four_findings_and_their_cures(tmp_path: Path) -> None:
    """On a machine that others use the insights are silent, and say so; the measurements stand on any."""
    shown = run("06_cpu_performance.ipynb", tmp_path, patience=400)
    everything = "\n".join(shown)
    assert "UsageError" not in everything
    doctor, cores, verdict, threads, whole, halves, attention, told, slowest, widths, fused, step = (
        text for text in shown if text
    )
    assert "findings in" in doctor
    assert "cores: " in " ".join(cores.split())
    (word,) = re.findall(r"^(oversubscribed|contended|throttled)$", verdict, re.MULTILINE)
    assert "'threads_wanted'" in verdict
    assert threads.count("step(batch)") >= 1
    footer = " ".join(whole.split())
    assert "Peaks with" in footer or "while peaks were measured" in footer, "on a busy machine they are of one thread"
    assert "bmm" in attention
    assert "aten::bmm" in slowest
    for text, names in (
        (halves, ("half", "float32")),
        (widths, ("width_13", "width_16")),
        (fused, ("by_hand", "one_operation")),
        (step, ("before", "after")),
    ):
        assert "baseline" in text
        assert all(name in text for name in names)
    is_calm = word == "oversubscribed" and "Other processes used" not in whole + attention
    if is_calm and "Other processes delayed" not in whole + attention and "Busy machine" not in whole + attention:
        assert "* oversubscribed: " in cores
        assert "one fused operation does all of it" in told
        assert "memory-bound-run: `In[" in told
    for line in fused, step:  # a factor of 2 and more
        ratio = re.search(r"(?:one_operation|after) +[\d.]+ +[\d.]+ +([\d.]+)", line)
        assert ratio is not None
        assert float(ratio[1]) > 1, "times as fast"


@pytest.mark.kernel
@pytest.mark.timeout(500)
@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_two_environments_are_undecided_until_each_has_a_history(tmp_path: Path) -> None:
    shown = run("07_two_environments.ipynb", tmp_path, patience=400)
    assert "UsageError" not in "\n".join(shown)
    _, _, printed, first, _, again, _, together, kept = shown
    assert printed.count("scores(q, k)") == 2
    assert "one run on each side cannot separate" in " ".join(first.split())
    assert "undecided" in first
    assert "one run on" not in " ".join(again.split()), "five runs of each are a history"
    assert again.count("runs.sqlite[") >= 2
    assert "earlier rows are not shown" in " ".join(again.split()) or re.search(r"\d+ more: ", again)
    assert "baseline" in together
    commits = re.findall(r"commit ([0-9a-f]{12})\n", kept)
    assert len(set(commits)) == 2, "each branch has its own"
    assert "(faster)" in kept


@pytest.mark.kernel
@pytest.mark.timeout(500)
def test_more_than_one_process_measures_on_a_cluster_and_names_the_late_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ipyparallel")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    shown = run("08_more_than_one_process.ipynb", tmp_path, patience=400)
    assert "UsageError" not in "\n".join(shown)
    started, _, sweep, resumed, everywhere, lone, job, straggler, files, loaded, end = shown
    assert "engines: [0, 1]" in started
    assert sweep.count("baseline") == 3
    assert "load" in sweep
    assert resumed.count("baseline") == 4
    assert "3 points taken from runs.sqlite" in " ".join(resumed.split())
    assert everywhere.count("baseline") == 2
    assert "unpaired" in " ".join(lone.split())
    assert "one run on each engine cannot tell a difference" in " ".join(lone.split())
    # who is late, and whether by chance, is as the machine has it: recorded traces say it in tests/cluster
    for told, line in ((job, ""), (straggler, "In[7]:11"), (loaded, "train.py:7 augment")):
        assert "delays the others" in " ".join(told.split())
        is_named = re.search(r"[Rr]ank \d delays", told)  # or none does, or it is unknown
        assert line in told or not is_named
    assert files.count(".json") == 2
    assert re.search(r"late by\s+\d", end)
    assert not (tmp_path / "ipython" / "profile_example08").exists(), "nothing of the cluster is left"


@pytest.mark.kernel
@pytest.mark.timeout(280)
def test_a_finding_leads_to_its_cure(tmp_path: Path) -> None:
    # on a busy machine other doubts fold away the one that is looked for: all are asked for
    all_doubts = "print(*(doubt.text for doubt in of_no_use.warnings))"
    *shown, doubts = run("09_from_finding_to_cure.ipynb", tmp_path, then=all_doubts)
    everything = "\n".join(shown)
    assert "UsageError" not in everything, "a magic that refuses its line does not stop the notebook"
    profile, optimizer, attention, validation, useless, table = shown[2:8]
    assert "step(tokens)" in profile
    for text, levers in (
        (optimizer, ("fused-optimizer", "foreach")),
        (validation, ("no_grad", "inference_mode")),
        (useless, ("flush-denormal",)),
    ):
        assert "as it is" in text
        for lever in levers:
            assert lever in text
            assert lever in table
    assert "one call" in attention
    assert "written out" in attention
    assert "`contiguous` was not timed" in doubts
    assert "differs" not in table
    assert "after" in shown[-1]
