"""Timing on a real cluster: points shared by engines, the same on all, and whatever may go wrong with an engine."""

from __future__ import annotations

import contextlib
import itertools
import linecache
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import torchbench_magic
from torchbench_magic.cell_body import Body
from torchbench_magic.cluster import engines
from torchbench_magic.cluster.engines import Asking, probe
from torchbench_magic.cluster.timing import compare_on_engines
from torchbench_magic.errors import BodyError, InputError, Interrupted, MissingTool, OptionError
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.fuzzers import points_of
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.task import Task

from .conftest import RunningCluster, one_more_engine, running_cluster, until_exists

QUICK: dict[str, Any] = {"number": 3, "repeat": 8, "threads": (1,)}
ADDS = {"a": "x + n", "b": "x.add(n).mul(2)"}


@pytest.fixture(autouse=True)
def _known(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Profiles are looked for where the cluster has its own."""
    if "cluster" in request.fixturenames:
        monkeypatch.setenv("IPYTHONDIR", str(request.getfixturevalue("cluster").ipython_dir))


def task(bodies: dict[str, str], *, sweep: str = "", setup: str = "", fuzz: str | None = None, **more: Any) -> Task:
    options = {**QUICK, "engines": "engines", **more.pop("options", {})}
    return Task(
        {name: Body(text, f"<{name}>") for name, text in bodies.items()},
        setup=[Body(setup, "<setup>")] if setup else [],
        plan=Plan(**options),
        points=points_of([sweep] if sweep else [], fuzz, {}),
        **more,
    )


def measured(bodies: dict[str, str], **more: Any) -> Comparison:
    return compare_on_engines(task(bodies, **more))


class Doing:
    """A progress that does something once, when what is told begins or ends so."""

    def __init__(self, when: str, what: Callable[[], object]) -> None:
        self._when, self._what, self.told = when, what, list[str]()

    def update(self, done: float, total: float | None, what: str) -> None:
        self.told.append(what)
        if self._when in what and self._what is not None:
            act, self._what = self._what, lambda: None
            act()


def stop() -> None:
    signal.raise_signal(signal.SIGINT)


def stop_at(there: Path) -> Callable[[], None]:
    """An interrupt when the engine's code has made this file: one that comes before the code begins can get lost."""

    def wait_and_stop() -> None:
        until_exists(there)
        stop()

    return wait_and_stop


# ---- what comes back ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_points_are_shared_by_the_hosts_and_alternatives_are_paired_at_each(cluster: RunningCluster) -> None:
    kept: list[Comparison] = []
    names = {"x": torch.ones(10)}
    found = measured(ADDS, sweep="n=[1, 2, 3]", namespace=names, keep=kept.append)
    assert found.frame["n"].tolist() == [1, 1, 2, 2, 3, 3]
    assert {*found.frame["method"]} == {"paired"}
    assert (found.frame["samples"] == 8).all()
    assert found.family == 3
    assert found.frame["env"].isna().all()
    used = {subject.place.engine for subject in found.subjects if subject.place is not None}
    assert len(used) == 1, "both are of one host, which has one at work at a time"
    assert [part.frame["n"].tolist() for part in kept] == [[1, 1], [2, 2], [3, 3]], "each at once"
    assert found.environment.torch == torch.__version__


@pytest.mark.one_of_each
def test_without_points_every_engine_measures_the_same_and_is_an_environment(cluster: RunningCluster) -> None:
    found = measured({"a": "x + 1", "b": "x.add(1)"}, namespace={"x": torch.ones(10)})
    envs = found.frame["env"].tolist()
    assert envs[0] == envs[1]
    assert [env.rpartition("/")[2] for env in envs] == ["0", "0", "1", "1"]
    assert {*found.frame["method"]} == {"paired"}
    named = measured({"a": "x + 1"}, namespace={"x": torch.ones(10)}, options={"env": "nightly"})
    assert [env.startswith("nightly, ") for env in named.frame["env"]] == [True, True]
    assert named.frame["method"].tolist() == ["unpaired", "unpaired"]
    assert named.frame["verdict"].tolist() == ["baseline", "undecided"]


@pytest.mark.slow
def test_two_engines_of_a_host_never_time_at_once(cluster: RunningCluster, tmp_path: Path) -> None:
    code = f"import os\nopen({str(tmp_path / 'log')!r}, 'a').write(f'{{os.getpid()}} ')"
    measured({"a": code})
    pids = (tmp_path / "log").read_text().split()
    changes = sum(one != other for one, other in itertools.pairwise(pids))
    assert len({*pids}) == 2
    assert changes == 1, "the second begins when the first has ended"


@pytest.mark.slow
def test_what_the_code_uses_travels_and_the_engine_stays_as_it_was(cluster: RunningCluster, tmp_path: Path) -> None:
    scale = 3

    def scaled(t: torch.Tensor) -> torch.Tensor:
        return t.mul(scale)

    class Layer(torch.nn.Module):
        def forward(self, t: torch.Tensor) -> torch.Tensor:
            return scaled(t)

    held: list[int] = []
    setup = (
        "import os, sys, torch\nassert layer(x).sum() == 9 and torch.get_default_dtype() is torch.float64\n"
        f"assert os.getcwd() == {os.getcwd()!r} and sys.getrecursionlimit() == 4321\nos.environ['LEFT'] = 'here'"
    )
    names = {"layer": Layer(), "x": torch.ones(3), "held": held}
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(4321)
    torch.set_default_dtype(torch.float64)
    try:
        found = measured({"a": "layer(x); held.append(1)"}, setup=setup, namespace=names, local={"unused": 1})
    finally:
        torch.set_default_dtype(torch.float32)
        sys.setrecursionlimit(limit)
    assert len(found.frame) == 2
    assert held == []
    with cluster.connected() as connected:
        for each in connected.ids:
            seen = "(lambda os, sys, t: (os.environ.get('LEFT'), sys.getrecursionlimit(), str(t.get_default_dtype())))"
            seen += "(*map(__import__, ('os', 'sys', 'torch')))"
            assert connected.client[each].apply_sync(eval, seen)[::2] == (None, "torch.float32")


@pytest.mark.slow
def test_names_of_the_calling_function_stand_before_globals_but_not_for_functions(cluster: RunningCluster) -> None:
    names: dict[str, Any] = {}
    exec("a = 1\ndef of_globals(): return a", names)
    found = measured({"s": "a"}, namespace=names, local={"a": 2}, setup="assert (a, of_globals()) == (2, 1)")
    assert len(found.frame) == 2


@pytest.mark.slow
def test_the_engine_knows_the_text_of_a_cell_whose_function_travels(cluster: RunningCluster) -> None:
    text = "def doubled(t):\n    return t * 2\n"
    names: dict[str, Any] = {"torch": torch, "__name__": "__main__"}
    exec(compile(text, "<cell 7>", "exec"), names)
    linecache.cache["<cell 7>"] = (len(text), None, text.splitlines(keepends=True), "<cell 7>")
    try:
        setup = "scripted = torch.jit.script(doubled)"
        found = measured({"a": "scripted(torch.ones(2))"}, setup=setup, namespace=names)
    finally:
        del linecache.cache["<cell 7>"]
    assert (found.frame["samples"] == 8).all()
    with cluster.connected() as connected:
        kept = connected.client[:].apply_sync(eval, "'<cell 7>' in __import__('linecache').cache")
    assert kept == [False, False]


@pytest.mark.slow
def test_fuzzed_points_have_the_tensors_that_they_have_here(cluster: RunningCluster) -> None:
    from torchbench_magic.timing.run import compare_bodies

    code = {"a": "x + y"}
    there = measured(code, fuzz="binary:3", namespace={"torch": torch})
    here = compare_bodies(task(code, fuzz="binary:3", namespace={"torch": torch}, options={"engines": None}))
    assert there.frame["sub_label"].tolist() == here.frame["sub_label"].tolist()
    assert [s.inputs for s in there.subjects] == [s.inputs for s in here.subjects]


def test_scripts_ask_for_engines_too(cluster: RunningCluster) -> None:
    found = torchbench_magic.compare(
        {"a": lambda: torch.ones(3).sum(), "b": "torch.ones(3).mean()"}, engines="engines", min_run_time=0.02
    )
    assert found.frame["description"].tolist() == ["a", "b", "a", "b"]
    assert found.frame["method"].tolist() == ["paired"] * 4


@pytest.mark.slow
def test_the_progress_names_engine_and_point(cluster: RunningCluster, tmp_path: Path) -> None:
    """Each point is at work until it was told of."""
    wanted = [f"engine 0 on {os.uname().nodename} at n={n} ({n} of 2): " for n in (1, 2)]

    class Told:
        def update(self, done: float, total: float | None, what: str) -> None:
            for n, start in enumerate(wanted, 1):
                if what.startswith(start):
                    (tmp_path / f"told {n}").touch()

    until = f"import os, time\nwhile not os.path.exists({str(tmp_path / 'told ')!r} + str(n)): time.sleep(0.01)"
    measured({"a": "sum((1, 2))"}, sweep="n=[1, 2]", setup=until, progress=Told())
    assert sorted(each.name for each in tmp_path.iterdir()) == ["told 1", "told 2"]


@pytest.mark.slow
def test_what_the_code_prints_is_shown_once_for_points_and_for_each_engine_else(
    cluster: RunningCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    measured({"a": "sum((1, n))"}, sweep="n=[1, 2]", setup="print('from the setup')")
    assert capsys.readouterr().out == "from the setup\n"
    measured({"a": "sum((1, 2))"}, setup="print('from the setup')")
    lines = sorted(capsys.readouterr().out.splitlines())
    assert [line.partition(" on ")[0] for line in lines] == ["engine 0", "engine 1"]
    assert all(line.endswith(": from the setup") for line in lines)


# ---- the store ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_finished_points_are_stored_at_once_and_found_again(cluster: RunningCluster, tmp_path: Path) -> None:
    from torchbench_magic.process.environment import read_environment
    from torchbench_magic.storage.resume import Recording
    from torchbench_magic.storage.store import Store

    store = Store(str(tmp_path / "runs.sqlite"))
    names = {"x": torch.ones(10)}
    slow = tmp_path / "slow"
    slow.touch()
    there = tmp_path / "there"
    nap = f"import os, time\nif n == 2 and os.path.exists({str(slow)!r}): open({str(there)!r}, 'w'); time.sleep(600)"
    told = Doing("n=2", stop_at(there))
    recording = Recording(store, read_environment())
    with pytest.raises(Interrupted):
        measured(ADDS, sweep="n=[1, 2]", setup=nap, namespace=names, keep=recording.keep, progress=told)
    slow.unlink()
    assert len(store.comparisons()[0].frame) == 2, "the first point, before the interrupt"
    recording = Recording(store, read_environment(), resume=True)
    # the engines have another OMP_NUM_THREADS than this process: theirs is what counts
    found = measured(ADDS, sweep="n=[1, 2]", setup=nap, namespace=names, keep=recording.keep, skip=recording.skip)
    assert recording.skipped == 1
    assert found.frame["n"].tolist() == [1, 1, 2, 2]
    same = {"a": "x + 1"}
    for _ in range(2):
        recording = Recording(store, read_environment(), resume=True)
        measured(same, namespace=names, keep=recording.keep, skip=recording.skip)
    assert recording.skipped == 2, "each engine finds its own"


# ---- what can go wrong --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_exception_comes_with_the_lines_of_the_code_and_names_the_engine(cluster: RunningCluster) -> None:
    import traceback

    names: dict[str, Any] = {}
    exec(compile("\n\ndef of_two(t):\n    return t.nope", "<cell 1>", "exec"), names)
    handed: list[Comparison] = []
    with pytest.raises(AttributeError, match="nope") as caught:
        measured({"a": "of_two(n) if n == 2 else None"}, sweep="n=[1, 2]", namespace=names, failed=handed.append)
    lines = [(f.filename, f.lineno, f.name) for f in traceback.extract_tb(caught.tb)]
    assert lines[-1] == ("<cell 1>", 4, "of_two")
    assert caught.value.__notes__ == [f"Raised on engine 0 on {os.uname().nodename} (--engines)."]
    assert handed[0].frame["n"].tolist() == [1], "what was measured is handed over"
    assert handed[0].partial
    with pytest.raises(AttributeError, match="nope"):
        measured({"a": "of_two(2)"}, namespace=names)


@pytest.mark.slow
def test_code_that_fails_on_one_engine_is_a_row_where_engines_are_environments(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    first = f"import os\np = {str(tmp_path / 'ran')!r}\nif not os.path.exists(p): open(p, 'w'); raise ValueError('old')"
    found = measured({"a": "sum((1, 2))"}, setup=first)
    assert sorted(found.frame["samples"]) == [0, 8]
    assert [s.place.why_not for s in found.subjects if s.place is not None and s.place.why_not] == [
        "raised ValueError: old"
    ]
    assert any("raised ValueError: old" in doubt.text for doubt in found.warnings)


@pytest.mark.slow
def test_an_interrupt_keeps_the_points_that_have_finished_and_brings_the_engines_back(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    slow = {"a": f"if n == 2:\n    open({str(there)!r}, 'w')\n    time.sleep(600)"}
    with pytest.raises(Interrupted) as caught:
        measured(slow, sweep="n=[1, 2]", setup="import time", progress=Doing("n=2", stop_at(there)))
    partial = caught.value.partial
    assert isinstance(partial, Comparison)
    assert partial.partial
    assert partial.frame["n"].tolist() == [1]
    assert partial.warnings[0].text.startswith("Partial: interrupted after ")
    assert len(measured({"a": "sum((1, 2))"}).frame) == 2, "both engines serve again"


@pytest.mark.slow
def test_an_interrupt_before_the_first_result_says_that_nothing_was_measured(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    told = Doing("running", stop_at(there))
    with pytest.raises(Interrupted, match="Nothing was measured yet: interrupted after") as caught:
        measured({"a": f"open({str(there)!r}, 'w')\ntime.sleep(600)"}, setup="import time", progress=told)
    assert caught.value.partial is None


@pytest.mark.slow
def test_a_busy_engine_is_a_row(cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    there = tmp_path / "there"
    with cluster.connected() as found:
        asking = Asking(found)
        second = probe(found)[1]
        asking.ask(second, "subprocess:check_call", {"args": ["sh", "-c", f"touch '{there}'; exec sleep 600"]})
        try:
            until_exists(there)
            monkeypatch.setattr(engines, "BUSY_AFTER", 0.1)
            made = measured({"a": "sum((1, 2))"})
        finally:
            asking.interrupt()
    assert made.frame["samples"].tolist() == [8, 0]
    assert [doubt.text for doubt in made.warnings if doubt.kind == "engine-left-out"] == [
        "engine 1 did not measure: it is busy with another task."
    ]


OTHER_ENGINES = {
    "without torch": ("import sys\nsys.modules['torch'] = None", "has no torch"),
    "another Python": (
        "import platform\nplatform.python_version = lambda: '3.99.1'",
        "has Python 3.99, to which functions",
    ),
    "without the package": (
        "import sys\nsys.modules['torchbench_magic'] = None",
        "has no torchbench_magic: install",
    ),
    "like the others": ("import sys\nsys.modules['decimal_of_ours'] = None", ""),
}


@pytest.mark.slow
def test_an_engine_that_cannot_serve_is_a_row_or_a_doubt_and_the_others_measure(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    names: dict[str, Any] = {}
    exec("def f(): return 3", names)
    with contextlib.ExitStack() as running:
        started = {
            running.enter_context(one_more_engine(cluster, tmp_path / name, customize)): why
            for name, (customize, why) in OTHER_ENGINES.items()
        }
        with cluster.connected() as connected:
            whys = {engine.id: started.get(engine.pid, "") for engine in probe(connected)}
        found = measured({"a": "f()"}, namespace=names)
        shared = measured({"a": "f() + n"}, sweep="n=[1, 2, 3, 4]", namespace=names)
    assert len(whys) == 6
    rows = sorted(whys.items(), key=lambda row: bool(row[1]))  # those that did not measure come last
    for subject, (engine, why), samples in zip(found.subjects, rows, found.frame["samples"], strict=True):
        place = subject.place
        assert place is not None
        assert place.engine == engine
        assert (place.why_not.startswith(why), bool(place.why_not)) == (True, bool(why)), place
        assert samples == (0 if why else 8), place
    assert (shared.frame["samples"] == 8).all()
    told = sorted(
        doubt.text.partition(" did not measure: it ")[2] for doubt in shared.warnings if doubt.kind == "engine-left-out"
    )
    assert [text[:13] for text in told] == ["has Python 3.", "has no torch.", "has no torchb"]


@pytest.mark.slow
def test_points_go_to_every_host_and_it_is_said_that_their_times_are_of_different_machines(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    """The third engine tells another host's name."""
    note = "import time\ntime.sleep(0.005)"
    customize = "import socket\nsocket.gethostname = lambda: 'elsewhere'"
    with one_more_engine(cluster, tmp_path / "third", customize):
        found = measured({"a": note + "; n"}, sweep="n=[1, 2, 3, 4, 5, 6]")
    assert {s.place.host for s in found.subjects if s.place is not None} == {os.uname().nodename, "elsewhere"}
    assert found.frame["n"].tolist() == [1, 2, 3, 4, 5, 6], "in the order of the sweep"
    assert "several-hosts" in [doubt.kind for doubt in found.warnings]


@pytest.mark.slow
def test_engines_that_die_are_rows_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One cluster for all: each story ends some of its engines."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    with running_cluster(folder, 5) as own:
        monkeypatch.setenv("IPYTHONDIR", str(own.ipython_dir))
        first_dies_at_its_second_point(tmp_path / "first")
        where_all_measure_the_same_the_dead_one_is_a_row(tmp_path / "second")
        with pytest.raises(BodyError, match=r"nothing was measured: engine 2 .*died"):
            measured({"a": "os._exit(3)"}, setup="import os")


def first_dies_at_its_second_point(mark: Path) -> None:
    once = f"import os\np = {str(mark)!r}\nif n == 2 and not os.path.exists(p): open(p, 'w'); os.kill(os.getpid(), 9)"
    found = measured({"a": "sum((1, n))"}, sweep="n=[1, 2, 3]", setup=once)
    assert found.frame["n"].tolist() == [1, 3, 2]
    assert found.frame["samples"].tolist() == [8, 8, 0]
    assert [s.place.engine for s in found.subjects if s.place is not None] == [0, 1, 0]
    assert [doubt.text for doubt in found.warnings if doubt.kind == "engine-left-out"] == [
        f"engine 0 on {os.uname().nodename} did not measure to the end: it died."
    ]


def where_all_measure_the_same_the_dead_one_is_a_row(mark: Path) -> None:
    once = f"import os\nif not os.path.exists({str(mark)!r}):\n    open({str(mark)!r}, 'w'); os.kill(os.getpid(), 9)"
    found = measured({"a": "sum((1, 2))"}, setup=once)
    assert [(s.place.engine, s.place.why_not) for s in found.subjects if s.place is not None] == [
        (2, ""),
        (3, ""),
        (4, ""),
        (1, "died"),
    ]
    assert found.frame["samples"].tolist() == [8, 8, 8, 0]


@pytest.mark.slow
def test_what_cannot_travel_is_one_line_before_anything_runs(cluster: RunningCluster) -> None:
    generator = (i for i in range(3))
    with pytest.raises(BodyError, match=r"`g` \(generator\) cannot be sent to an engine: .*; make `g` in the setup"):
        measured({"a": "next(g)"}, namespace={"g": generator})
    big = torch.empty(65 << 20, dtype=torch.uint8)
    with pytest.raises(BodyError, match=r"`big` .*: the tensors take more than 64 MiB: make them in the setup"):
        measured({"a": "big.sum()"}, namespace={"big": big})
    with pytest.raises(BodyError, match=r"`lock` .* cannot be sent to an engine"):
        measured({"a": "lock"}, local={"lock": threading.Lock()})


@pytest.mark.slow
def test_a_later_point_that_cannot_travel_hands_over_the_earlier_ones(cluster: RunningCluster) -> None:
    handed: list[Comparison] = []
    names = {"big": torch.empty(65 << 20, dtype=torch.uint8)}
    asked = task({"a": "sum(v[:2])"}, failed=handed.append)
    points = points_of(["v=[[1, 2], big]"], None, names)
    with pytest.raises(BodyError, match=r"`points` .*: the tensors take more than 64 MiB"):
        compare_on_engines(replace(asked, points=points))
    assert [len(part.frame) for part in handed] == [1]
    assert len(measured({"a": "sum((1, 2))"}).frame) == 2, "both engines serve again"


@pytest.mark.slow
def test_what_does_not_go_with_engines_is_refused_in_one_line(cluster: RunningCluster) -> None:
    from torchbench_magic.timing.plan import Counting

    with pytest.raises(OptionError, match="use either processes"):
        Plan(engines="engines", processes=2)
    with pytest.raises(OptionError, match="--callgrind counts the same on every engine"):
        measured({"a": "sum((1, 2))"}, counting=Counting(100))
    with pytest.raises(OptionError, match="code that awaits is timed in this session"):
        compare_on_engines(task({"a": "await f()"}), awaits=True)


def test_without_a_cluster_one_line_says_how_to_start_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    with pytest.raises(InputError, match=r"--engines nowhere: .* with: ipcluster start -n 2 --profile=nowhere"):
        measured({"a": "sum((1, 2))"}, options={"engines": "nowhere"})


def test_without_ipyparallel_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipyparallel", None)
    with pytest.raises(MissingTool, match=r"python -m pip install 'torchbench_magic\[cluster\]'"):
        measured({"a": "sum((1, 2))"})
