"""``--resume``: points are kept as they finish and found again, also after a kill."""

from __future__ import annotations

import importlib.util
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.quiet_machine import quiet
from torchbench_magic.cell_body import Body
from torchbench_magic.errors import Interrupted, StoreError
from torchbench_magic.process.environment import read_commit, read_environment
from torchbench_magic.storage.resume import Recording
from torchbench_magic.storage.store import Store, load
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.run import compare_bodies
from torchbench_magic.timing.sweep import Point, sweep_points
from torchbench_magic.timing.task import Task

# ==== resumed runs ====================================================================================================
# Points are kept as they finish and found again: with the real core, at a millisecond a point.


PLAN = Plan(number=1, repeat=2)
HERE = read_environment()
BODIES = {"add": Body("n + 1"), "mul": Body("n * 2")}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.sqlite"


def points(count: int = 4) -> list[Point]:
    return sweep_points([f"n=list(range({count}))"], {})


def measured(
    path: Path, *, resume: bool = False, environment: Any = None, patience: float = 5.0, **changed: Any
) -> Comparison:
    """A sweep with a store beside it."""
    recording = Recording(Store(path, patience=patience), environment or read_environment(), resume=resume)
    asked: dict[str, Any] = {"namespace": {}, "plan": PLAN, "points": points(), **changed}
    bodies = asked.pop("bodies", BODIES)
    return recording.finish(compare_bodies(Task(bodies, keep=recording.keep, skip=recording.skip, **asked)))


def test_each_point_is_written_as_soon_as_it_is_finished(path: Path) -> None:
    seen = []

    def after(n: int) -> int:
        if path.exists():
            with closing(sqlite3.connect(path)) as connection:
                seen.append((n, connection.execute("SELECT count(*) FROM record").fetchone()[0]))
        return n

    measured(path, bodies={"f": Body("after(n)")}, namespace={"after": after})
    assert dict(seen) == {0: 0, 1: 1, 2: 2, 3: 3}
    (whole,) = load(path)
    assert list(whole.frame["n"]) == [0, 1, 2, 3]


def test_the_stored_run_is_the_result(path: Path) -> None:
    result = measured(path, points=points(2))
    (stored,) = load(path)
    assert stored.frame.drop(columns=["n"]).equals(result.frame.drop(columns=["n"]))
    assert stored.options == result.options
    result.save(path)
    assert len(load(path)) == 1


def test_what_is_interrupted_is_resumed_where_it_stopped(path: Path) -> None:
    calls: list[int] = []

    def body(n: int) -> None:
        calls.append(n)
        if n == 2 and len(set(calls)) == 3 and stop.exists():
            raise KeyboardInterrupt

    stop = path.with_name("stop")  # a variable that is set would be another value, with which all is measured again
    stop.touch()
    code: dict[str, Any] = {"bodies": {"f": Body("body(n)")}, "namespace": {"body": body}}
    with pytest.raises(Interrupted):
        measured(path, **code)
    assert list(load(path)[0].frame["n"]) == [0, 1]
    stop.unlink()
    calls.clear()
    whole = measured(path, resume=True, **code)
    assert set(calls) == {2, 3}
    assert list(whole.frame["n"]) == [0, 1, 2, 3]
    assert [list(result.frame["n"]) for result in load(path)] == [[0, 1, 2, 3]]
    assert [d.text for d in whole.warnings if d.kind == "resumed"] == [
        f"2 points taken from {path}, measured there before. Not compared: `calls` (the code changes it)."
    ]


def skipped(path: Path, **changed: Any) -> int:
    """How many of the points of a first run a second one takes over."""
    if not path.exists():
        measured(path, points=points(2))
    result = measured(path, resume=True, **{"points": points(2), **changed})
    return int(next((d.text.split()[0] for d in result.warnings if d.kind == "resumed"), 0))


def test_everything_is_taken_over_when_nothing_changed(path: Path) -> None:
    assert skipped(path) == 2
    assert skipped(path, plan=replace(PLAN, label="In[9]")) == 2
    assert len(load(path)) == 1


def test_without_resume_everything_is_measured_again(path: Path) -> None:
    measured(path, points=points(1))
    measured(path, points=points(1))
    assert len(load(path)) == 2


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a run of two points on one thread, to be copied."""
    path = tmp_path_factory.mktemp("stored") / "runs.sqlite"
    with pytest.MonkeyPatch.context() as patched:
        quiet(patched.setattr)
        here = replace(HERE, num_threads=1)
        measured(path, points=points(2), environment=here, plan=replace(PLAN, threads=(1,)))
    return path


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"bodies": {"add": Body("n + 1"), "mul": Body("n * 3")}}, "the code of `mul` was edited"),
        (
            {"bodies": {"add": Body("n + 1"), "sub": Body("n - 2")}},
            "the list of alternatives was add and mul, is add and sub",
        ),
        ({"plan": replace(PLAN, repeat=3)}, "option repeat was 2, is 3"),
        ({"plan": replace(PLAN, label="L")}, "the label was none, is L"),
        ({"plan": replace(PLAN, baseline="mul")}, "option baseline was none, is mul"),
        ({"environment": replace(HERE, torch="2.99.0")}, f"torch was {HERE.torch}, is 2.99.0"),
        ({"environment": replace(HERE, python="3.99.1")}, f"Python was {HERE.python.rpartition('.')[0]}, is 3.99"),
        ({"environment": replace(HERE, cpu="another")}, f"the processor was {HERE.cpu or 'none'}, is another"),
        ({"environment": replace(HERE, usable_cores=99)}, f"the number of usable cores was {HERE.usable_cores}, is 99"),
        (
            {"environment": replace(HERE, variables={**HERE.variables, "ATEN_MADE_UP": "1"})},
            "environment variable ATEN_MADE_UP was not set, is 1",
        ),
    ],
)
def test_what_changed_is_measured_again_and_the_line_says_what_it_was(
    path: Path, stored: Path, changed: dict[str, Any], reason: str
) -> None:
    shutil.copyfile(stored, path)
    asked = {"environment": replace(HERE, num_threads=1), **changed}
    asked["plan"] = replace(asked.get("plan", PLAN), threads=asked.get("plan", PLAN).threads or (1,))
    result = measured(path, resume=True, points=points(2), **asked)
    assert not [d for d in result.warnings if d.kind == "resumed"]
    said = [d.text for d in result.warnings if d.kind == "measured-again"]
    assert said == [f"2 points measured again, since the stored run differs: {reason}."]


def test_code_that_no_stored_run_has_says_nothing_and_is_measured(path: Path) -> None:
    measured(path, resume=True, points=points(1))
    for edited in ({"bodies": {"other": Body("n + 7")}}, {"setup": [Body("m = 1")]}):
        found = measured(path, resume=True, points=points(1), **edited)  # type: ignore[arg-type]
        assert not {d.kind for d in found.warnings} & {"resumed", "measured-again"}


def test_a_lone_run_and_one_with_several_reasons_are_said_in_one_line(path: Path) -> None:
    measured(path, points=points(2))
    both = replace(HERE, torch="2.99.0", cpu="another", usable_cores=99, python="3.99.0")
    code: dict[str, Any] = {"points": points(1), "environment": both, "plan": replace(PLAN, repeat=3)}
    (said,) = [d.text for d in measured(path, resume=True, **code).warnings if d.kind == "measured-again"]
    assert said.startswith("Measured again, since the stored run differs: Python was ")
    assert said.endswith(" and 2 more.")


ASKS = """
import os
from os import environ, getenv
NAME = "TB_MADE_UP"
def by_key(): return int(os.environ["TB_MADE_UP"])
def by_get(): return os.environ.get("TB_MADE_UP", 1)
def by_getenv(): return getenv("TB_MADE_UP")
def by_import(): return environ["TB_MADE_UP"]
def by_name(): return os.getenv(NAME)
def helper(name): return os.environ.get(name)
def by_helper(): return helper("TB_MADE_UP")
class Job:
    def run(self): return "TB_MADE_UP" in os.environ and os.environ["TB_MADE_UP"]
job = Job()
"""


@pytest.mark.parametrize(
    "body",
    [
        *("os.environ['TB_MADE_UP']", "os.getenv('TB_MADE_UP')", "environ['TB_MADE_UP']", "helper('TB_MADE_UP')"),
        *("by_key()", "by_get()", "by_getenv()", "by_import()", "by_name()", "by_helper()", "job.run()"),
    ],
)
def test_an_environment_variable_that_the_code_reads_is_part_of_what_is_the_same(
    path: Path, body: str, monkeypatch: Any
) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(ASKS, "<cell>", "exec"), names)
    code: dict[str, Any] = {"bodies": {"f": Body(f"{body}, n")}, "namespace": names}
    monkeypatch.setenv("TB_MADE_UP", "10")
    measured(path, points=points(1), **code)
    monkeypatch.setenv("TB_UNRELATED", "1")
    assert skipped(path, **{**code, "points": points(1)}) == 1
    monkeypatch.setenv("TB_MADE_UP", "20")
    result = measured(path, resume=True, points=points(1), **code)
    (said,) = [d.text for d in result.warnings if d.kind == "measured-again"]
    assert said.endswith("differs: `os.environ['TB_MADE_UP']` was '10', is '20'.")


def test_an_environment_variable_that_was_not_set_is_known_and_a_secret_is_not_stored(
    path: Path, monkeypatch: Any
) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(ASKS, "<cell>", "exec"), names)
    code: dict[str, Any] = {"bodies": {"f": Body("by_get()")}, "namespace": names, "points": ()}
    monkeypatch.delenv("TB_MADE_UP", raising=False)
    measured(path, **code)
    kinds = {doubt.kind for doubt in measured(path, resume=True, **code).warnings}
    assert kinds & {"resumed", "measured-again"} == {"resumed"}
    monkeypatch.setenv("TB_MADE_UP", "correct horse battery staple")
    (said,) = [d.text for d in measured(path, resume=True, **code).warnings if d.kind == "measured-again"]
    assert said.endswith("differs: `os.environ['TB_MADE_UP']` was not set, is a text.")
    assert b"horse" not in path.read_bytes()


def test_an_edited_function_is_measured_again_though_the_cell_is_the_same(path: Path) -> None:
    def namespace(source: str) -> dict[str, Any]:
        made: dict[str, Any] = {"__name__": "__main__"}
        exec(source, made)
        return made

    bodies = {"f": Body("f(n)")}
    before = "def g(n):\n    return n + 1\ndef f(n):\n    return g(n)"
    measured(path, bodies=bodies, namespace=namespace(before), points=points(2))
    assert skipped(path, bodies=bodies, namespace=namespace(before)) == 2
    assert skipped(path, bodies=bodies, namespace=namespace(before.replace("n + 1", "n + 2"))) == 0
    assert skipped(path, bodies=bodies, namespace=namespace(before + "\ndef unused(): pass")) == 2


HIDDEN = """
class Cfg:
    n = SIZE
class Holder:
    def __init__(self): self.size = SIZE
    def run(self): return self.size
cfg, obj, mode = {"size": SIZE}, Holder(), "x" if SIZE == 1 else "y"
def default(n=SIZE): return n
def of_class(): return Cfg.n
"""


@pytest.mark.parametrize(
    "body", ["cfg['size']", "Cfg.n", "obj.size", "obj.run()", "default()", "of_class()", "cfg.get(mode)", "mode"]
)
def test_a_value_that_source_and_shapes_do_not_tell_is_measured_again(path: Path, body: str) -> None:
    def namespace(size: int) -> dict[str, Any]:
        made: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(HIDDEN.replace("SIZE", "size"), "<cell>", "exec"), made | {"size": size}, made)
        for value in list(made.values()):
            if isinstance(value, type(skipped)):
                value.__globals__.update(made)
        return made

    code: dict[str, Any] = {"bodies": {"f": Body(f"{body}, n")}, "points": points(1)}
    measured(path, namespace=namespace(1), **code)
    assert skipped(path, namespace=namespace(1), **code) == 1
    assert skipped(path, namespace=namespace(2), **code) == 0


def test_what_cannot_be_compared_is_said_where_a_stored_time_is_taken_over(path: Path, tmp_path: Path) -> None:
    with (tmp_path / "data").open("w") as file:
        code: dict[str, Any] = {"bodies": {"f": Body("file.name")}, "namespace": {"file": file}, "points": ()}
        measured(path, **code)
        result = measured(path, resume=True, **code)
    (said,) = [d.text for d in result.warnings if d.kind == "resumed"]
    assert said == f"1 point taken from {path}, measured there before. Not compared: `file` (TextIOWrapper)."


@pytest.mark.parametrize(
    "code",
    [
        {"bodies": {"f": Body("log.append(1)")}, "points": ()},
        {"bodies": {"f": Body("log[-1] + n")}, "setup": [Body("log.append(n)")], "points": points(2)},
    ],
)
def test_a_list_that_the_code_or_the_setup_fills_is_said_not_to_be_compared(path: Path, code: dict[str, Any]) -> None:
    measured(path, namespace={"log": []}, **code)
    result = measured(path, resume=True, namespace={"log": [0, 1]}, **code)
    (said,) = [d.text for d in result.warnings if d.kind == "resumed"]
    assert said.endswith("Not compared: `log` (the code changes it).")


def test_a_run_of_a_store_without_values_is_taken_over_and_says_what_was_not_recorded(path: Path) -> None:
    code: dict[str, Any] = {"bodies": {"f": Body("cfg['n']")}, "namespace": {"cfg": {"n": 1}}, "points": ()}
    older = compare_bodies(Task(code["bodies"], namespace=code["namespace"], plan=PLAN))
    subjects = tuple(replace(subject, values=None, given_values=None) for subject in older.subjects)
    Store(path).append(replace(older, subjects=subjects, environment=read_environment()))
    result = measured(path, resume=True, **code)
    (said,) = [d.text for d in result.warnings if d.kind == "resumed"]
    assert said.endswith("Not compared: `cfg['n']` (not recorded then).")


def test_more_points_are_added_to_those_that_are_there(path: Path) -> None:
    measured(path, points=points(2))
    result = measured(path, resume=True, points=points(4))
    assert list(result.frame["n"][::2]) == [0, 1, 2, 3]
    assert "2 points taken" in str(result.warnings)


@pytest.fixture
def lock(path: Path) -> Iterator[sqlite3.Connection]:
    """Another process's transaction (a connection of its own is one to SQLite)."""
    Store(path).check()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        yield other


def test_a_store_that_fails_during_the_run_loses_nothing_and_is_said(path: Path, lock: sqlite3.Connection) -> None:
    def body(n: int) -> None:
        if n == 1 and not lock.in_transaction:
            lock.execute("BEGIN EXCLUSIVE")

    code: dict[str, Any] = {"bodies": {"f": Body("body(n)")}, "namespace": {"body": body}}
    result = measured(path, patience=0.1, **code)
    assert list(result.frame["n"]) == [0, 1, 2, 3]
    said = result.warnings[0]
    assert said.kind == "not-stored"
    assert said.text.startswith("3 finished points could not be stored: ")
    assert "another process has held it locked" in said.text
    lock.execute("ROLLBACK")
    result.save(path)
    assert sorted(n for stored in load(path) for n in stored.frame["n"]) == [0, 1, 2, 3]


def test_points_that_waited_for_the_store_are_written_later(path: Path, lock: sqlite3.Connection) -> None:
    def body(n: int) -> None:
        if n == 1 and not lock.in_transaction:
            lock.execute("BEGIN EXCLUSIVE")
        elif n == 3 and lock.in_transaction:
            lock.execute("ROLLBACK")

    code: dict[str, Any] = {"bodies": {"f": Body("body(n)")}, "namespace": {"body": body}}
    result = measured(path, patience=0.1, **code)
    assert not [d for d in result.warnings if d.kind == "not-stored"]
    assert list(load(path)[0].frame["n"]) == [0, 1, 2, 3]


def test_a_store_that_cannot_be_written_is_said_before_anything_runs(path: Path) -> None:
    path.write_text("notes\n")
    with pytest.raises(StoreError, match="is not a store of results"):
        Recording(Store(path), read_environment())


# ---- the commit ---------------------------------------------------------------------------------------------


def test_the_commit_of_a_folder_is_read_with_a_mark_where_files_differ(tmp_path: Path, path: Path) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        return subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    assert read_commit(tmp_path) is None
    git("init", "-q")
    assert read_commit(tmp_path) is None
    (tmp_path / "a.py").write_text("1\n")
    git("add", "a.py")
    git("commit", "-qm", "one")
    git("tag", "v1")
    head = git("rev-parse", "HEAD")[:12]
    assert read_commit(tmp_path) == head
    (tmp_path / "a.py").write_text("2\n")
    assert read_commit(tmp_path) == head + "+"
    environment = replace(read_environment(), commit=read_commit(tmp_path))
    assert measured(path, environment=environment).environment.commit == head + "+"
    assert load(path)[0].environment.commit == head + "+"


def test_a_folder_that_is_not_there_and_a_git_that_hangs_have_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_commit(tmp_path / "nowhere") is None
    slow = tmp_path / "git"
    slow.write_text("#!/bin/sh\nexec sleep 30\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert read_commit(tmp_path, timeout=0.2) is None


SETTINGS: dict[str, tuple[Callable[[], Any], str]] = {
    "grad mode": (torch.no_grad, "grad mode was the default, is off"),
    "inference mode": (torch.inference_mode, "inference mode was the default, is True"),
    "autocast": (lambda: torch.autocast("cpu", torch.bfloat16), "autocast was the default, is on, bfloat16"),
    "anomaly detection": (torch.autograd.detect_anomaly, "anomaly detection was the default, is (True, True)"),
}


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("name", SETTINGS)
def test_a_run_with_another_setting_of_torch_is_measured_anew_and_that_is_said(path: Path, name: str) -> None:
    setting, words = SETTINGS[name]
    code: dict[str, Any] = {"bodies": {"f": Body("x + 1")}, "namespace": {"x": torch.ones(2)}, "points": ()}
    measured(path, **code)
    with setting():
        again = measured(path, resume=True, **code)
        taken = measured(path, resume=True, **code)
    assert any(words in doubt.text for doubt in again.warnings)
    assert [doubt.kind for doubt in again.warnings].count("resumed") == 0
    assert [doubt.kind for doubt in taken.warnings].count("resumed") == 1
    assert [doubt.kind for doubt in measured(path, resume=True, **code).warnings].count("resumed") == 1


def test_hooks_of_a_module_are_part_of_it_and_what_tensors_hold_is_said_not_to_be_compared(path: Path) -> None:
    net, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
    code: dict[str, Any] = {"bodies": {"f": Body("net(x)")}, "namespace": {"net": net, "x": x}, "points": ()}
    measured(path, **code)
    (said,) = [doubt.text for doubt in measured(path, resume=True, **code).warnings if doubt.kind == "resumed"]
    assert said.endswith("The contents of tensors and arrays are not compared.")
    hook = net.register_forward_hook(lambda *_: None)
    with_hook = measured(path, resume=True, **code).warnings
    assert "resumed" not in {doubt.kind for doubt in with_hook}
    assert any("training mode, 1 hook" in doubt.text for doubt in with_hook)
    hook.remove()
    assert "resumed" in {doubt.kind for doubt in measured(path, resume=True, **code).warnings}


def test_a_difference_that_no_text_tells_is_said_in_words(path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    code: dict[str, Any] = {"bodies": {"f": Body("net(x)")}, "namespace": {"net": net, "x": torch.ones(1, 2)}}
    measured(path, points=(), **code)
    net[1] = torch.nn.Tanh()
    said = " ".join(doubt.text for doubt in measured(path, resume=True, points=(), **code).warnings)
    assert "`net` was Sequential with 6 values in 2 tensors" in said


@pytest.mark.parametrize("code", ["np.argwhere(x)", "net(x)"])
def test_a_function_of_a_library_that_the_user_replaced_is_measured_anew_and_named(
    path: Path, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"np": np, "x": torch.ones(1, 2), "net": torch.nn.Linear(2, 2)}
    asked: dict[str, Any] = {"bodies": {"f": Body(code)}, "namespace": names, "points": ()}
    measured(path, **asked)
    owner, name = (np, "argwhere") if code.startswith("np") else (torch.nn.functional, "linear")
    was = getattr(owner, name)

    def mine(*args: Any) -> Any:
        return was(*args)

    monkeypatch.setattr(owner, name, mine)
    again = measured(path, resume=True, **asked).warnings
    assert "resumed" not in {doubt.kind for doubt in again}
    assert any(f"{owner.__name__}.{name} was the default, is `" in doubt.text for doubt in again)
    assert "resumed" in {doubt.kind for doubt in measured(path, resume=True, **asked).warnings}


# ==== kill resume =====================================================================================================
# The benchmark ``kill_resume`` in small: a sweep that is killed three times loses no finished point.


BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_sweep_killed_three_times_loses_no_finished_point_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)  # where it finds `record`
    spec = importlib.util.spec_from_file_location("kill_resume", BENCHMARKS / "kill_resume.py")
    assert spec is not None
    assert spec.loader is not None
    kill_resume = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "kill_resume", kill_resume)
    spec.loader.exec_module(kill_resume)
    outcome = kill_resume.run(points=60, kills=3, path=tmp_path / "runs.sqlite", seed=1)
    assert outcome.kills == 3
    assert outcome.lost == set()
    assert outcome.stored == list(range(60))
    assert outcome.results == 1
    assert outcome.finished
    assert outcome.measured_again == set()
    assert set(outcome.begun) == set(range(60))
