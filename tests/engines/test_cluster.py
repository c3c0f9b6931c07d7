"""Finding a cluster and its engines."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from torchbench_magic.cluster import engines
from torchbench_magic.cluster.engines import Answer, Asking, Cluster, Engine, connected, probe, why_not
from torchbench_magic.errors import InputError, MissingTool

from .conftest import PROFILE, RunningCluster, one_more_engine

SLEEP = "subprocess:check_call", {"args": ["sleep", "600"]}


def answers(asking: Asking) -> list[Answer]:
    found: list[Answer] = []
    while asking.pending:
        found += asking.poll()
        asking.wait()
    return found


def until_asleep(process: int) -> None:
    """An engine that was asked to `SLEEP` does."""
    while "sleep" not in names_of_children(process):
        time.sleep(0.01)


def names_of_children(process: int) -> list[str]:
    """Without those that end while they are asked."""
    names = []
    for child in psutil.Process(process).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            names.append(child.name())
    return names


@pytest.mark.slow
def test_every_engine_is_found_with_what_it_runs(cluster: RunningCluster) -> None:
    with cluster.connected() as found:
        probed = probe(found)
    assert [(each.id, each.state, each.python, why_not(each)) for each in probed] == [
        (n, "ready", sys.version.split()[0], "") for n in (0, 1)
    ]
    assert len({each.place for each in probed}) == 1
    assert len({each.pid for each in probed}) == 2


@pytest.mark.slow
def test_an_engine_runs_a_function_of_the_package_and_what_it_prints_comes_back(cluster: RunningCluster) -> None:
    with cluster.connected() as found:
        asking = Asking(found)
        for engine in probe(found):
            asking.ask(engine, "torchbench_magic.units:count", {"value": engine.id + 1.0})
        assert sorted((each.engine.id, each.kind, each.value) for each in answers(asking)) == [
            (0, "value", "1"),
            (1, "value", "2"),
        ]
        asking.ask(probe(found)[0], "builtins:print", {"sep": "", "end": "printed there"})
        assert [each.stdout for each in answers(asking)] == ["printed there"]


@pytest.mark.slow
def test_what_the_function_raises_is_an_answer_in_one_line(cluster: RunningCluster) -> None:
    with cluster.connected() as found:
        asking = Asking(found)
        asking.ask(probe(found)[1], "torchbench_magic.units:count", {"unknown": 1})
        (only,) = answers(asking)
    assert only.kind == "raised"
    assert only.said.startswith("ended with TypeError: count() got an unexpected keyword")


@pytest.mark.slow
def test_a_busy_engine_is_told_and_an_interrupt_brings_it_back(
    cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster.connected() as found:
        asking = Asking(found)
        first = probe(found)[0]
        asking.ask(first, *SLEEP)
        until_asleep(first.pid)
        with monkeypatch.context() as patched:
            patched.setattr(engines, "BUSY_AFTER", 0.1)
            assert [each.state for each in probe(found)] == ["busy", "ready"]
        assert [(each.engine.id, each.kind) for each in asking.interrupt()] == [(0, "interrupted")]
        assert [each.state for each in probe(found)] == ["ready", "ready"]


@pytest.mark.slow
def test_an_engine_that_is_killed_in_mid_task_answers_that_it_died(cluster: RunningCluster, tmp_path: Path) -> None:
    with one_more_engine(cluster, tmp_path / "third") as pid, cluster.connected() as found:
        asking = Asking(found)
        probed = probe(found)
        (third,) = [each for each in probed if each.pid == pid]
        for each in (probed[0], third):
            asking.ask(each, *SLEEP)
            until_asleep(each.pid)
        os.kill(pid, signal.SIGKILL)
        while not (came := asking.poll()):
            asking.wait()
        assert [(each.engine.id, each.kind, each.said) for each in came] == [(third.id, "died", "died")]
        assert [each.engine.id for each in asking.interrupt()] == [0]
        assert [each.id for each in probe(found)] == [0, 1]


def test_without_a_cluster_one_line_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught, connected("missing", tmp_path):
        pass
    assert str(caught.value) == (
        "--engines missing: no cluster of this profile or id runs. Start one with: ipcluster start -n 2"
        " --profile=missing"
    )
    with pytest.raises(InputError, match="is neither the name of a profile nor the id"), connected("../a", tmp_path):
        pass


@pytest.mark.slow
def test_a_cluster_that_has_ended_is_told_in_one_line(
    cluster: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_CONTROLLER_ANSWERS_WITHIN", 0.5)
    file = f"profile_{PROFILE}/security/ipcontroller-client.json"
    told = json.loads((cluster.ipython_dir / file).read_text())
    (tmp_path / file).parent.mkdir(parents=True)
    nobody_listens = {name: 1 if isinstance(value, int) else value for name, value in told.items()}
    (tmp_path / file).write_text(json.dumps(nobody_listens))
    message = r"does not answer .*ended\. Start one with: ipcluster"
    with pytest.raises(InputError, match=message), connected(PROFILE, tmp_path):
        pass


def test_a_broken_file_of_a_cluster_is_told_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / f"profile_{PROFILE}/security/ipcontroller-client.json"
    file.parent.mkdir(parents=True)
    for told in ("", '{"interface": "tcp', "\x00", "[]", "{}"):
        file.write_text(told)
        with pytest.raises(InputError, match="does not answer") as caught, connected(PROFILE, tmp_path):
            pass
        assert "\n" not in str(caught.value)


def test_of_several_clusters_of_a_profile_the_ids_are_named(tmp_path: Path) -> None:
    security = tmp_path / "profile_default" / "security"
    security.mkdir(parents=True)
    for name in ("one", "two"):
        (security / f"ipcontroller-{name}-client.json").write_text("{}")
    with (
        pytest.raises(InputError, match="several clusters; give the id of one: one, two"),
        connected("default", tmp_path),
    ):
        pass


def test_without_ipyparallel_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipyparallel", None)
    with (
        pytest.raises(MissingTool, match=r"python -m pip install 'torchbench_magic\[cluster\]'"),
        connected("default", tmp_path),
    ):
        pass


def test_when_the_controller_has_ended_all_who_were_asked_have_died() -> None:
    """Its last engine's end is not told then, and ipyparallel's results would be waited for for ever."""
    now, never = [0.0], SimpleNamespace(ready=lambda: False)
    with socket.create_server(("127.0.0.1", 0)) as listens:
        config = {"registration": f"tcp://127.0.0.1:{listens.getsockname()[1]}"}
        view = SimpleNamespace(apply_async=lambda *asked: never)
        client = SimpleNamespace(_config=config, _ssh=False, direct_view=lambda engine: view)
        asking = Asking(Cluster("made", client), clock=lambda: now[0])
        for number in (0, 1):
            asking.ask(Engine(number, "ready", host="here"), *SLEEP)
        now[0] += 1
        assert asking.poll() == []
    assert asking.poll() == [], "it is looked for once a second"
    now[0] += 1
    found = asking.poll()
    assert [(each.engine.id, each.kind) for each in found] == [(0, "died"), (1, "died")]
    assert found[0].said.endswith("the cluster's controller has ended")
    assert asking.pending == ()
    client._ssh = True
    assert not Cluster("made", client).has_ended(), "a tunnel listens, or not, for reasons of its own"


def test_why_an_engine_cannot_serve() -> None:
    import torchbench_magic

    whys: dict[str, dict[str, object]] = {
        "": {},
        "is busy with another task": {"state": "busy"},
        "has no torch": {"torch": None},
        "has Python 3.9, to which functions cannot be sent from": {"python": "3.9.1"},
        "has torchbench_magic 0.0.1, not": {"package": "0.0.1"},
        "has no torchbench_magic: install": {"package": None},
    }
    good = {"state": "ready", "python": sys.version.split()[0], "torch": "2.13.0"}
    for said, changed in whys.items():
        made = Engine(0, **{**good, "package": torchbench_magic.__version__, **changed})
        told = why_not(made, has_code=True)
        assert (told.startswith(said), bool(told)) == (True, bool(said)), (changed, told)


def cluster_of(statuses: list[dict[Any, Any]], answers_after: dict[int, int]) -> Any:
    """A cluster whose engines answer after so many looks, and whose controller tells these one after the other."""
    looks = dict.fromkeys(answers_after, 0)

    def result(engine: int) -> Any:
        def ready() -> bool:
            looks[engine] += 1
            return looks[engine] > answers_after[engine]

        return SimpleNamespace(ready=ready, get=lambda timeout: {"host": "h"})

    left = iter(statuses)
    client = SimpleNamespace(queue_status=lambda: next(left), abort=lambda *_, **__: None)
    return SimpleNamespace(ids=tuple(answers_after), client=client, begin=lambda engine, *_: result(engine))


def test_a_controller_that_hears_late_of_a_task_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "BUSY_AFTER", 0.5)
    idle, at_work = {"queue": 1, "tasks": 0}, {"queue": 2, "tasks": 0}
    clock = itertools.count(0.0, 0.1)
    made = cluster_of([{0: idle, 1: idle}, {0: at_work, 1: idle, "unassigned": 0}], {0: 10**6, 1: 12})
    assert [each.state for each in probe(made, clock=lambda: next(clock))] == ["busy", "ready"]


def test_an_engine_that_does_not_answer_in_time_is_silent_or_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "BUSY_AFTER", 0.5)
    clock = itertools.count(0.0, 0.1)
    idle = {each: {"queue": 1, "tasks": 0} for each in (0, 1)}
    made = cluster_of([idle] * 100, {0: 0, 1: 10**6})
    assert [each.state for each in probe(made, deadline=5.0, clock=lambda: next(clock))] == ["ready", "silent"]
    assert 5.0 < next(clock) < 5.5


@pytest.mark.slow
def test_an_engine_without_torch_or_the_package_is_found_and_told(cluster: RunningCluster, tmp_path: Path) -> None:
    without = 'import sys\nsys.modules["torch"] = sys.modules["torchbench_magic"] = None\n'
    with one_more_engine(cluster, tmp_path / "third", without) as pid, cluster.connected() as found:
        (third,) = [each for each in probe(found) if each.pid == pid]
        assert (third.state, third.torch, third.package) == ("ready", None, None)
        assert why_not(third) == "has no torch"


def test_the_command_that_is_named_exists() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "ipyparallel.cluster", "start", "--help"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert "--profile" in shown
    assert "-n" in shown
