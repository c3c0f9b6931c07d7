"""Pickles: torch's come in and go out, and one that tries to run code is refused before it has run anything."""

from __future__ import annotations

import os
import pickle
import pickletools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from torch.utils.benchmark import CallgrindStats, FunctionCounts, Measurement
from torch.utils.benchmark.utils.common import TaskSpec
from torch.utils.benchmark.utils.valgrind_wrapper.timer_interface import FunctionCount

from tests.timing.samples import pair
from torchbench_magic import load_torch_pickle
from torchbench_magic.errors import StoreError
from torchbench_magic.storage.torch_pickles import comparison_of_measurements

SPEC = TaskSpec("f(x)", "x = 1", "#include <a>", "L", "S", "D", "E", 2)
COUNTS = FunctionCounts((FunctionCount(12, "a.c:f [lib.so]"), FunctionCount(3, "g")), inclusive=True)
STATS = CallgrindStats(SPEC, 100, True, COUNTS, COUNTS, COUNTS, COUNTS, "events: Ir")


def measurement(median: float = 1e-3, **metadata: Any) -> Measurement:
    made = Measurement(10, [median * 10, median * 11, median * 12], SPEC, metadata or None)
    assert made.median  # fills the caches that are pickled with it
    return made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.pkl"


# ---- what is admitted ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_measurement_of_torch_comes_in(path: Path, protocol: int) -> None:
    before = measurement(where={"a": [1, 2.5, None, b"x", (True, "t")], "s": {1}})
    path.write_bytes(pickle.dumps(before, protocol))
    if protocol < 3:
        before.metadata["where"]["a"][3] = "x"  # type: ignore[index]
        path.write_bytes(pickle.dumps(before, protocol))  # their bytes are a call of _codecs.encode, which is refused
    (after,) = load_torch_pickle(path)
    assert type(after) is Measurement
    assert (after.task_spec, after.raw_times, after.number_per_run) == (SPEC, before.raw_times, 10)
    assert after.median == before.median
    assert after.metadata == before.metadata


def test_counts_come_in(path: Path) -> None:
    path.write_bytes(pickle.dumps([STATS, COUNTS, SPEC]))
    stats, counts, spec = load_torch_pickle(path)
    assert (type(stats), type(counts), spec) == (CallgrindStats, FunctionCounts, SPEC)
    assert stats.counts(denoise=False) == STATS.counts(denoise=False)
    assert type(counts._data[0]) is FunctionCount
    assert counts._data == COUNTS._data
    assert (stats.built_with_debug_symbols, stats.stmt_callgrind_out) == (True, "events: Ir")


def test_lists_and_several_pickles_in_a_file_are_laid_out_in_order(path: Path) -> None:
    with path.open("wb") as file:
        pickle.dump([measurement(1e-3), (measurement(2e-3),)], file)
        pickle.dump(measurement(3e-3), file)
        pickle.dump({"a": measurement(4e-3)}, file)
    assert [round(m.median * 1e3, 1) for m in load_torch_pickle(path)] == [1.1, 2.2, 3.3, 4.4]


@pytest.mark.slow
def test_our_measurements_unpickle_where_there_is_only_torch(path: Path) -> None:
    ours = pair(1e-3, 2e-3).measurements
    path.write_bytes(pickle.dumps(ours))
    script = (
        "import pickle, sys\n"
        "found = pickle.load(open(sys.argv[1], 'rb'))\n"
        "from torch.utils.benchmark import Compare\n"
        "assert not [name for name in sys.modules if name.startswith('torchbench_magic')]\n"
        "print([round(m.median * 1e6) for m in found], found[0].description, type(found[0]).__module__)\n"
        "assert 'mul' in str(Compare(found))\n"
    )
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    said = subprocess.run(
        [sys.executable, "-I", "-c", script, str(path)], capture_output=True, text=True, env=env, cwd=path.parent
    )
    assert said.stdout.split("\n")[0] == "[1000, 2000] mul torch.utils.benchmark.utils.common", said.stderr


def test_the_frame_goes_out_as_csv(path: Path) -> None:
    made = pair(1e-3, 2e-3)
    text = made.to_csv()
    assert text is not None
    assert text.splitlines()[0].startswith("label,sub_label,description,env,num_threads,device,median,iqr")
    assert made.to_csv(path) is None
    back = pd.read_csv(path)
    assert list(back["description"]) == ["mul", "bmm"]
    assert list(back["median"]) == list(made.frame["median"])
    assert list(back["verdict"]) == ["baseline", "slower"]


def test_imported_measurements_become_a_comparison(path: Path) -> None:
    path.write_bytes(pickle.dumps(pair(1e-3, 2e-3).measurements))
    made = comparison_of_measurements(load_torch_pickle(path))
    assert list(made.frame["description"]) == ["mul", "bmm"]
    assert [round(m * 1e3, 6) for m in made.frame["median"]] == [1.0, 2.0]
    assert made.frame["verdict"].isna().all()  # nobody knows whether they were measured side by side


# ---- what is refused ----------------------------------------------------------------------------------------

COMMON = b"ctorch.utils.benchmark.utils.common\n"


class Runs:
    """Pickles as a call."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.call


def attacks(sentinel: Path) -> dict[str, bytes]:
    """Ways to run something, or to change torch's classes, while a file is read. Each would leave a trace."""
    touch = f"open({str(sentinel)!r}, 'w').close()"
    system = f"touch {sentinel}"
    spec = pickle.dumps(measurement())
    return {
        "os.system": pickle.dumps(Runs(os.system, system)),
        "exec": pickle.dumps(Runs(exec, touch)),
        "eval": pickle.dumps([measurement(), Runs(eval, touch)]),
        "open": pickle.dumps(Runs(open, str(sentinel), "w")),
        "after a good pickle": spec + pickle.dumps(Runs(os.system, system)),
        "in metadata": pickle.dumps(measurement(x=Runs(os.system, system))),
        "in raw_times": pickle.dumps(Measurement(1, [Runs(exec, touch)], SPEC)),  # type: ignore[list-item]
        "getattr": b"cbuiltins\ngetattr\n(" + COMMON + b"Measurement\nX\x05\0\0\0mergetR.",
        "import": b"c__builtin__\n__import__\n(X\x02\0\0\0ostR.",
        "a module with a side effect": b"cside_effect\nname\n.",
        "dotted name": b"\x80\x04\x8c\x22torch.utils.benchmark.utils.common\x8c\x0eos.path.exists\x93.",
        "torch's Timer": b"ctorch.utils.benchmark.utils.timer\nTimer\n(X" + _text(touch) + b"tR.",
        "copyreg": b"ccopyreg\nadd_extension\n(X\x01\0\0\0aX\x01\0\0\0bI9\ntR.",
        "codecs": b"c_codecs\nencode\n(X\x01\0\0\0atR.",
        "attribute of the class": COMMON + b"Measurement\n(N}X\x06\0\0\0medianI1\nstb.",
        "attribute of object": b"cbuiltins\nobject\n(N}X\x06\0\0\0medianI1\nstb.",
        "attribute of the reconstructor": b"ccopyreg\n_reconstructor\n(N}X\x08\0\0\0__code__I1\nstb.",
        "attribute of a builtin": b"cbuiltins\nset\n(N}X\x03\0\0\0addI1\nstb.",
        "persistent id": b"Pevil\n.",
        "memory": b"cbuiltins\nbytearray\n(L99999999999999L\ntR.",
    }


def _text(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(4, "little") + data


NAMES = list(attacks(Path("x")))


@pytest.mark.parametrize("name", NAMES)
def test_a_pickle_that_tries_to_run_code_is_refused_and_nothing_ran(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentinel, path = tmp_path / "ran", tmp_path / "evil.pkl"
    (tmp_path / "side_effect.py").write_text(f"open({str(sentinel)!r}, 'w').close()\nname = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = {kind: dict(vars(kind)) for kind in (Measurement, TaskSpec, CallgrindStats, FunctionCounts)}
    import copyreg

    reconstructor = dict(vars(copyreg._reconstructor))  # type: ignore[attr-defined]
    path.write_bytes(attacks(sentinel)[name])
    with pytest.raises(StoreError) as caught:
        load_torch_pickle(path)
    assert "\n" not in str(caught.value)
    assert not sentinel.exists()
    assert "side_effect" not in sys.modules
    assert {kind: dict(vars(kind)) for kind in before} == before
    assert dict(vars(copyreg._reconstructor)) == reconstructor  # type: ignore[attr-defined]


def test_the_attacks_do_run_where_nothing_guards_them(tmp_path: Path) -> None:
    """Else the test above would prove nothing."""
    for name in ("os.system", "exec", "eval", "open", "after a good pickle", "in metadata", "in raw_times"):
        sentinel, path = tmp_path / "ran", tmp_path / "evil.pkl"
        path.write_bytes(attacks(sentinel)[name])
        with path.open("rb") as file:
            while file.tell() < path.stat().st_size:
                opened = pickle.load(file)
                if hasattr(opened, "close"):
                    opened.close()
        assert sentinel.exists(), name
        sentinel.unlink()


def test_a_refusal_names_what_was_asked_for(path: Path) -> None:
    path.write_bytes(pickle.dumps(Runs(os.system, "true")))
    with pytest.raises(StoreError, match=r"m\.pkl: refused, nothing was run: it names posix\.system; only torch's"):
        load_torch_pickle(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"raw_times": ["1"]}, "raw_times of a Measurement is a list, not "),
        ({"raw_times": "12"}, "raw_times of a Measurement is a str"),
        ({"number_per_run": 0}, "below 1"),
        ({"number_per_run": True}, "number_per_run of a Measurement is a bool"),
        ({"task_spec": "f(x)"}, "task_spec of a Measurement is a str"),
        ({"metadata": [1]}, "metadata of a Measurement is a list"),
    ],
    ids=str,
)
def test_fields_of_another_type_are_refused(path: Path, change: dict[str, Any], said: str) -> None:
    wrong = Measurement(10, [1.0], SPEC)
    vars(wrong).update(change)
    path.write_bytes(pickle.dumps(wrong))
    with pytest.raises(StoreError, match=said):
        load_torch_pickle(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "holds no measurement"),
        (b"\x80", "not a readable pickle"),
        (pickle.dumps(measurement())[:-20], "not a readable pickle"),
        (b"SQLite format 3\0", "not a readable pickle"),
        (pickle.dumps([]), "holds no measurement"),
        (pickle.dumps({"a": 1}), "it holds a int"),
        (pickle.dumps(COUNTS._data[0]), "FunctionCount by itself"),
        (b"(" * 100_000 + b".", "not a readable pickle|refused"),
    ],
    ids=range(8),
)
def test_what_is_no_pickle_of_measurements_is_said_in_one_line(path: Path, content: bytes, said: str) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreError, match=said) as caught:
        load_torch_pickle(path)
    assert "\n" not in str(caught.value)


def test_the_attacks_are_pickles(tmp_path: Path) -> None:
    for name, content in attacks(tmp_path / "ran").items():
        assert [op.name for op, _, _ in pickletools.genops(content)][-1] == "STOP", name
