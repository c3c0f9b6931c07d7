"""What events of torch before 2.13 do not say is made of what they do say: the same, where torch says both."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torchbench_magic import profile  # noqa: E402
from torchbench_magic.errors import Busy  # noqa: E402
from torchbench_magic.profiling import kineto  # noqa: E402
from torchbench_magic.profiling.older_torch import with_missing_getters  # noqa: E402

MISSING = ("activity_type", "structured_input_shapes", "structured_input_strides")
OUT_OF_STEP = "Can't disable Kineto profiler when it's not running"


def run(x: Any, net: Any) -> None:
    with torch.profiler.record_function("mine"):
        torch.cat([x, x.T, x[::2]])
    torch.split(x, [1, 3]), x.t().mm(x), torch.einsum("ij,jk->ik", x, x)
    net(x).sum().backward()


@pytest.fixture(scope="module")
def results() -> Any:
    prof = torch.profiler.profile(record_shapes=True)
    with prof:
        run(torch.rand(4, 4), torch.nn.Linear(4, 4))
    return prof.profiler.kineto_results


def as_before(kind: Any) -> Any:
    """The class of events without what came later."""
    return SimpleNamespace(
        **{name: getattr(kind, name) for name in dir(kind) if name not in MISSING and not name.startswith("__")}
    )


def test_kinds_shapes_and_strides_are_those_of_torch(results: Any) -> None:
    kind = type(results.events()[0])
    if not hasattr(kind, MISSING[0]):
        pytest.skip("this torch does not say them: nothing to compare with")
    made = with_missing_getters(as_before(kind), results, shapes=True)
    seen = set()
    for event in results.events():
        for name in MISSING if kind.activity_type(event) == "cpu_op" else MISSING[:1]:
            assert getattr(made, name)(event) == getattr(kind, name)(event), (event.name(), name)
        seen.add((event.name(), kind.activity_type(event)))
    assert {("aten::cat", "cpu_op"), ("mine", "user_annotation")} <= seen


def test_without_shapes_inputs_are_empty(results: Any) -> None:
    made = with_missing_getters(as_before(type(results.events()[0])), results, shapes=False)
    assert {str(made.structured_input_shapes(event)) for event in results.events()} == {"[]"}


def test_events_of_a_device_are_told_by_their_names() -> None:
    made = with_missing_getters(SimpleNamespace(), None, shapes=False)

    def kind(name: str, device: int, is_annotation: bool) -> str:
        event = SimpleNamespace(
            name=lambda: name, device_type=lambda: device, is_user_annotation=lambda: is_annotation
        )
        word: str = made.activity_type(event)
        return word

    cuda = 1
    assert kind("void gemm<float>(int)", cuda, False) == "kernel"
    assert kind("Memcpy HtoD (Pageable -> Device)", cuda, False) == "gpu_memcpy"
    assert kind("Memset (Device)", cuda, False) == "gpu_memset"
    assert kind("mine", cuda, True) == "gpu_user_annotation"
    assert kind("cudaLaunchKernel", 0, False) == kind("hipLaunchKernel", 0, False) == "cuda_runtime"
    assert kind("cuLaunchKernel", 0, False) == "cuda_driver"
    assert kind("Activity Buffer Request", 0, False) == "overhead"
    assert kind("aten::mul", 0, False) == kind("custom", 0, False) == "cpu_op"


def out_of_step(*args: Any) -> None:
    raise RuntimeError(OUT_OF_STEP)


def test_a_profiler_that_was_never_started_does_not_keep_others_from_recording(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Up to torch 2.12 each later `prepare_trace` of the process failed."""
    theirs = torch.profiler.profile.prepare_trace

    def fails_once(self: Any) -> None:
        monkeypatch.setattr(torch.profiler.profile, "prepare_trace", theirs)
        theirs(self)
        out_of_step()

    profile("x + 1", globals={"x": torch.ones(3)})  # torch's libraries are loaded
    monkeypatch.setattr(torch.profiler.profile, "prepare_trace", fails_once)
    made = profile("x + 1", globals={"x": torch.ones(3)})
    assert made.ops["op"].tolist()[0] == "aten::add"
    assert torch.profiler.profile.prepare_trace is theirs


def test_a_profiler_in_its_warm_up_is_refused_and_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    profile("x + 1", globals={"x": torch.ones(3)})
    warming = torch.profiler.profile(schedule=torch.profiler.schedule(wait=0, warmup=1, active=1))
    warming.start()
    try:
        monkeypatch.setattr(torch.profiler.profile, "prepare_trace", out_of_step)
        with pytest.raises(Busy, match=r"in its warm-up; stop it first \(`prof\.stop\(\)`\)"):
            profile("x + 1", globals={"x": torch.ones(3)})
        monkeypatch.undo()
        assert warming.profiler.entered
    finally:
        warming.stop()


def test_events_that_another_profiler_took_are_said_and_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    profile("x + 1", globals={"x": torch.ones(3)})
    theirs = torch.profiler.profile.stop_trace

    def taken(self: Any) -> None:
        theirs(self)
        self.profiler.kineto_results = None
        out_of_step()

    monkeypatch.setattr(torch.profiler.profile, "stop_trace", taken)
    made = profile("x + 1", globals={"x": torch.ones(3)})
    assert "events-lost" in [doubt.kind for doubt in made.warnings]
    assert not kineto.torch_profiler_runs()


def test_another_error_of_torchs_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Any) -> None:
        raise RuntimeError("something else")

    monkeypatch.setattr(torch.profiler.profile, "prepare_trace", fails)
    with pytest.raises(RuntimeError, match="something else"):
        profile("x + 1", globals={"x": torch.ones(3)})
