"""Finding a cluster and its engines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest

from tests.engines.conftest import PROFILE, RunningCluster, running_cluster
from torchbench_magic.core.engines.asking import Answer, Asking, Question
from torchbench_magic.core.engines.cluster import connected
from torchbench_magic.core.engines.probing import probe, why_not
from torchbench_magic.errors import InputError, MissingTool
from torchbench_magic.results.machine.engines import Engine

SLEEP = Question("subprocess:check_call", {"args": ["sleep", "60"]})


def answers(asking: Asking) -> list[Answer]:
    found: list[Answer] = []
    until = time.monotonic() + 60
    while asking.pending:
        found += asking.poll()
        asking.wait()
        assert time.monotonic() < until
    return found


def test_every_engine_is_found_with_what_it_runs(cluster: RunningCluster) -> None:
    with cluster.connected() as found:
        engines = probe(found)
    assert [(each.id, each.state, each.python, why_not(each)) for each in engines] == [
        (n, "ready", sys.version.split()[0], "") for n in (0, 1)
    ]
    assert len({each.place for each in engines}) == 1
    assert len({each.pid for each in engines}) == 2


def test_an_engine_runs_a_function_of_the_package_and_what_it_prints_comes_back(cluster: RunningCluster) -> None:
    with cluster.connected() as found:
        asking = Asking(found)
        for engine in probe(found):
            asking.ask(engine, Question("torchbench_magic.units:count", {"value": engine.id + 1.0}))
        assert sorted((each.engine.id, each.kind, each.value) for each in answers(asking)) == [
            (0, "value", "1"),
            (1, "value", "2"),
        ]
        asking.ask(probe(found)[0], Question("builtins:print", {"sep": "", "end": "printed there"}))
        assert [each.stdout for each in answers(asking)] == ["printed there"]


def test_what_the_function_raises_is_an_answer_in_one_line(cluster: RunningCluster) -> None:
    with cluster.connected() as found:
        asking = Asking(found)
        asking.ask(probe(found)[1], Question("torchbench_magic.units:count", {"unknown": 1}))
        (only,) = answers(asking)
    assert only.kind == "raised"
    assert only.said.startswith("ended with TypeError: count() got an unexpected keyword")


def test_a_busy_engine_is_told_and_an_interrupt_brings_it_back(cluster: RunningCluster) -> None:
    with cluster.connected() as found:
        asking = Asking(found)
        first = probe(found)[0]
        asking.ask(first, SLEEP)
        assert [each.state for each in probe(found)] == ["busy", "ready"]
        assert [(each.engine.id, each.kind) for each in asking.interrupt()] == [(0, "interrupted")]
        assert [each.state for each in probe(found)] == ["ready", "ready"]


@pytest.mark.slow
def test_an_engine_that_is_killed_in_mid_task_answers_that_it_died(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as own, own.connected() as found:
        asking = Asking(found)
        engines = probe(found)
        for each in engines:
            asking.ask(each, SLEEP)
        time.sleep(0.2)
        os.kill(engines[1].pid, signal.SIGKILL)
        until = time.monotonic() + 60
        while not (came := asking.poll()):
            assert time.monotonic() < until
            asking.wait()
        assert [(each.engine.id, each.kind, each.said) for each in came] == [(1, "died", "died")]
        assert [each.engine.id for each in asking.interrupt()] == [0]
        assert [each.id for each in probe(found)] == [0]


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
def test_a_cluster_that_has_ended_is_told_in_one_line(cluster: RunningCluster, tmp_path: Path) -> None:
    file = f"profile_{PROFILE}/security/ipcontroller-client.json"
    told = json.loads((cluster.ipython_dir / file).read_text())
    (tmp_path / file).parent.mkdir(parents=True)
    nobody_listens = {name: 1 if isinstance(value, int) else value for name, value in told.items()}
    (tmp_path / file).write_text(json.dumps(nobody_listens))
    message = r"does not answer .*ended\. Start one with: ipcluster"
    with pytest.raises(InputError, match=message), connected(PROFILE, tmp_path):
        pass


def test_a_cluster_that_is_only_starting_is_waited_for(cluster: RunningCluster, tmp_path: Path) -> None:
    name = f"profile_{PROFILE}/security/ipcontroller-client.json"
    file, told = tmp_path / name, (cluster.ipython_dir / name).read_text()
    file.parent.mkdir(parents=True)
    file.write_text("")
    writing = threading.Timer(0.3, lambda: file.write_text(told))
    writing.start()
    with connected(PROFILE, tmp_path) as found:
        assert len(found.ids) == 2
    writing.join()


@pytest.mark.parametrize("told", ["", '{"interface": "tcp', "\x00", "[]", "{}"])
def test_a_broken_file_of_a_cluster_is_told_in_one_line(
    told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchbench_magic.core.engines.cluster._WRITTEN_WITHIN", 0.1)
    name = f"profile_{PROFILE}/security/ipcontroller-client.json"
    file = tmp_path / name
    file.parent.mkdir(parents=True)
    file.write_text(told)
    with pytest.raises(InputError) as caught, connected(PROFILE, tmp_path):
        pass
    assert str(caught.value) == (
        f"the cluster of --engines {PROFILE} left an empty or broken file, {name}."
        f" Start one with: ipcluster start -n 2 --profile={PROFILE}"
    )


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


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, ""),
        ({"state": "busy"}, "is busy with another task"),
        ({"torch": None}, "has no torch"),
        ({"python": "3.9.1"}, "has Python 3.9, to which functions cannot be sent from"),
        ({"package": "0.0.1"}, "has torchbench_magic 0.0.1, not"),
        ({"package": None}, "has no torchbench_magic: install"),
    ],
)
def test_why_an_engine_cannot_serve(changed: dict[str, object], said: str) -> None:
    import torchbench_magic

    good = {"state": "ready", "python": sys.version.split()[0], "torch": "2.13.0"}
    made = Engine(0, **{**good, "package": torchbench_magic.__version__, **changed})
    told = why_not(made, has_code=True)
    assert told.startswith(said)
    assert bool(told) == bool(said)


@pytest.mark.slow
def test_an_engine_without_torch_or_the_package_is_found_and_told(tmp_path: Path) -> None:
    hiding = tmp_path / "hiding"
    hiding.mkdir()
    (hiding / "sitecustomize.py").write_text(
        textwrap.dedent(
            """\
            import sys
            sys.modules["torch"] = sys.modules["torchbench_magic"] = None
            """
        )
    )
    with running_cluster(tmp_path, 1, PYTHONPATH=str(hiding)) as own, own.connected() as found:
        (only,) = probe(found)
        assert (only.state, only.torch, only.package) == ("ready", None, None)
        assert why_not(only) == "has no torch"


@pytest.mark.slow
def test_nothing_of_the_cluster_is_left_when_it_has_ended(tmp_path: Path) -> None:
    with running_cluster(tmp_path, 1) as own:
        ours = psutil.Process(own.process.pid).children(recursive=True)
        assert ours
    assert not [each for each in ours if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]


def test_the_command_that_is_named_exists() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "ipyparallel.cluster", "start", "--help"],
        check=True, capture_output=True, text=True, timeout=60,
    ).stdout  # fmt: skip
    assert "--profile" in shown
    assert "-n" in shown
