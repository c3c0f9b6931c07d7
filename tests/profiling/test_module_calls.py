"""Calls of nn.Modules: found, named as the user would, and without a trace left behind."""

from __future__ import annotations

import contextlib
import threading
import time
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.modules import module as torch_modules  # noqa: E402

from torchbench_magic import profile  # noqa: E402
from torchbench_magic.profiling.module_calls import ModuleCalls  # noqa: E402
from torchbench_magic.profiling.profile import Profile  # noqa: E402
from torchbench_magic.profiling.recorder import choose_line_source  # noqa: E402


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(2, 2, 1)

    def forward(self, x: Any) -> Any:
        return self.conv1(x).relu()


class Again(nn.Module):
    """Calls itself ``n`` times."""

    def forward(self, x: Any, n: int) -> Any:
        return self(x.exp(), n - 1) if n else x


class Fails(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Identity()

    def forward(self, x: Any) -> Any:
        raise ValueError(str(self.inner(x).sum()))


def hooks() -> tuple[int, int, int]:
    return (
        len(torch_modules._global_forward_pre_hooks),
        len(torch_modules._global_forward_hooks),
        len(torch_modules._global_forward_hooks_always_called),
    )


def calls(made: Profile) -> dict[str, int]:
    return dict(zip(made.modules["name"], made.modules["calls"], strict=True))


def code(text: str, **names: Any) -> Profile:
    return profile(text, globals={"torch": torch, "nn": nn, **names})


# ---- names ------------------------------------------------------------------------------------------------------


def test_a_module_is_named_by_its_variable_and_its_path() -> None:
    model = nn.Sequential(Block(), nn.Sequential(Block(), nn.Identity()))
    made = code("for _ in range(3): model(x)", model=model, x=torch.ones(1, 2, 4))
    assert calls(made) == {
        "model": 3,
        "model.0": 3,
        "model.0.conv1": 3,
        "model.1": 3,
        "model.1.0": 3,
        "model.1.0.conv1": 3,
        "model.1.1": 3,
    }
    parents = [made.modules["name"][parent] if parent >= 0 else "" for parent in made.modules["parent"]]
    assert parents == ["", "model", "model.0", "model", "model.1", "model.1.0", "model.1"]


def test_the_outermost_module_gives_the_name() -> None:
    model = nn.Sequential(Block())
    assert "model.0" in calls(code("model(x)", head=model[0], model=model, x=torch.ones(1, 2, 4)))
    assert "_12" not in calls(code("model(x)", _12=model, model=model, x=torch.ones(1, 2, 4)))


def test_modules_in_lists_dictionaries_and_objects_are_named_by_the_way_to_them() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.net = Block()

    names = {"nets": [Block(), Block()], "by": {"a": Block()}, "trainer": Trainer(), "x": torch.ones(1, 2, 4)}
    made = code("nets[1](x); by['a'](x); trainer.net(x)", **names)
    roots = {"nets[1]", "by['a']", "trainer.net"}
    assert set(calls(made)) == roots | {f"{root}.conv1" for root in roots}


def test_what_is_not_a_module_is_left_alone() -> None:
    class Proxy:
        touched = 0

        def __getattribute__(self, name: str) -> Any:
            Proxy.touched += 1
            raise RuntimeError(name)

    made = code("net(x)", net=nn.Identity(), x=torch.ones(2), lazy=Proxy(), many=[Proxy()], by={"a": Proxy()})
    assert calls(made) == {"net": 1}
    assert Proxy.touched == 0


def test_a_module_has_the_name_of_its_variable_also_of_one_that_is_new_or_gone_and_else_of_its_class() -> None:
    assert set(calls(code("net = nn.Sequential(nn.Identity()); net(torch.ones(2))"))) == {"net", "net.0"}
    made = code("def f():\n    return Block()(torch.ones(1, 2, 4))\nf()", Block=Block)
    assert set(calls(made)) == {"Block", "Block.conv1"}
    assert set(calls(code("net(torch.ones(2))\ndel net", net=nn.Identity()))) == {"net"}


def test_a_closure_can_name_a_module() -> None:
    model = nn.Identity()
    assert set(calls(profile(lambda: model(torch.ones(2))))) == {"model"}


def test_modules_are_not_kept_alive() -> None:
    text = "for _ in range(50):\n    nn.Linear(300, 300)(x)\n"
    made = profile(text, globals={"nn": nn, "x": torch.ones(1, 300)}, memory=True)
    assert made.memory is not None
    assert made.memory["bytes"].max() < 5 * 4 * 300 * 300


# ---- what runs --------------------------------------------------------------------------------------------------


def test_ops_know_their_module_and_backward_ops_the_one_that_caused_them() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4, bias=False))
    made = code("net(x).sum().backward()", net=net, x=torch.ones(3, 4))
    found = made.ops.groupby("op")["module"].agg(lambda names: sorted(names.dropna()))
    assert found["aten::linear"] == ["net.0", "net.2"]
    assert found["aten::tanh"] == found["TanhBackward0"] == found["aten::tanh_backward"] == ["net.1"]
    assert found["AddmmBackward0"] == ["net.0"]
    assert found["MmBackward0"] == ["net.2"]
    assert found["SumBackward0"] == []


def test_a_gradient_is_of_the_module_whose_parameter_it_is() -> None:
    """The truth is a hook on each parameter, called within its AccumulateGrad."""
    torch.manual_seed(0)
    net = nn.Sequential(Block(), nn.Conv1d(2, 3, 1), nn.Sequential(nn.BatchNorm1d(3), nn.Linear(4, 5)), nn.Linear(5, 1))
    order: list[str] = []
    for name, parameter in net.named_parameters():
        owner = f"net.{name.rpartition('.')[0]}"
        parameter.register_post_accumulate_grad_hook(lambda _, owner=owner: order.append(owner))
    made = code("for _ in range(2):\n    net(x).square().sum().backward()\n", net=net, x=torch.ones(6, 2, 4))
    rows = made.ops[made.ops["op"] == "torch::autograd::AccumulateGrad"]
    assert dict(rows.groupby("module")["calls"].sum()) == {owner: order.count(owner) for owner in order}
    assert len(order) == 2 * len(list(net.parameters()))


def test_a_gradient_of_no_module_has_none() -> None:
    made = code("(w * 2).sum().backward()\nw.backward(torch.ones(3))", w=torch.ones(3, requires_grad=True))
    assert made.ops["module"].isna().all()


def test_time_backward_is_on_the_module_that_caused_it() -> None:
    net = nn.Sequential(nn.Linear(400, 400), nn.ReLU())
    made = code("net(x).sum().backward()", net=net, x=torch.ones(200, 400))
    rows = made.modules.set_index("name")
    by_op = made.ops[made.ops["op"] == "aten::mm"]["self_cpu_time"].sum()
    assert rows.loc["net.0", "backward_cpu_time"] >= by_op > 0
    inner = rows.loc[["net.0", "net.1"], "backward_cpu_time"].sum()
    assert rows.loc["net", "backward_cpu_time"] == pytest.approx(inner, abs=1e-9)
    assert rows.loc["net", "backward_cpu_time"] <= made.lines["backward_cpu_time"].sum()
    assert rows.loc["net", "forward_time"] <= made.wall_time


def test_a_module_that_calls_itself_is_a_call_within_a_call() -> None:
    made = code("again(x, 3)", again=Again(), x=torch.ones(2))
    assert made.modules["name"].tolist() == ["again"] * 4
    assert made.modules["parent"].tolist() == [-1, 0, 1, 2]
    assert made.frames[made.frames["name"] == "aten::exp"]["calls"].tolist() == [1, 1, 1]


def test_a_call_ends_with_the_exception_that_leaves_it() -> None:
    made = code("try:\n    fails(x)\nexcept ValueError:\n    pass\ny = x.exp()\n", fails=Fails(), x=torch.ones(2))
    assert calls(made) == {"fails": 1, "fails.inner": 1}
    assert made.ops.set_index("op")["module"].to_dict()["aten::sum"] == "fails"
    assert made.ops[made.ops["op"] == "aten::exp"]["module"].isna().all()


def test_a_call_that_is_interrupted_ends_with_the_run() -> None:
    class Interrupts(nn.Module):
        def forward(self, x: Any) -> Any:
            raise KeyboardInterrupt

    text = "try:\n    outer(x)\nexcept KeyboardInterrupt:\n    pass\nx.exp()\n"
    made = code(text, outer=nn.Sequential(Interrupts()), x=torch.ones(2))
    assert calls(made) == {"outer": 1, "outer.0": 1}
    assert (made.modules["forward_time"] <= made.wall_time).all()


def test_modules_of_other_threads_are_seen() -> None:
    text = "t = threading.Thread(target=net, args=(x,))\nt.start()\nt.join()\n"
    made = code(text, net=nn.Tanh(), x=torch.ones(2), threading=threading)
    rows = made.frames[made.frames["name"] == "net"]
    assert rows["thread"].tolist() == [1]
    assert made.ops.set_index("op").loc["aten::tanh", "module"] == "net"


# ---- compiled and scripted --------------------------------------------------------------------------------------


@pytest.mark.compiler
def test_a_compiled_module_is_one_call_and_compiles_no_more_than_without() -> None:
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    compiled = torch.compile(net, backend="eager", fullgraph=True)
    x = torch.ones(2, 4)
    with torch.no_grad():
        compiled(x)
        graphs = counters["stats"]["unique_graphs"]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            made = code("y = compiled(x)", compiled=compiled, x=x)
        assert counters["stats"]["unique_graphs"] == graphs
    assert calls(made) == {"compiled": 1}
    assert made.ops.set_index("op").loc["aten::relu", "module"] == "compiled"


def test_a_whole_graph_compiles_during_the_run() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), backend="eager", fullgraph=True)
    made = code("y = compiled(torch.ones(2, 4))", compiled=compiled)
    assert calls(made)["compiled"] == 1


def test_a_scripted_module_is_one_call() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    made = code("y = scripted(x)", scripted=scripted, x=torch.ones(2, 4))
    assert calls(made) == {"scripted": 1}


# ---- left as found ----------------------------------------------------------------------------------------------


def test_hooks_and_filters_are_gone_afterwards_whatever_happened() -> None:
    code("None")  # torch's first profile imports sympy, which adds a filter
    before, filters = hooks(), list(warnings.filters)
    for text in ("net(x)", "net(x); raise ValueError", "1 / 0"):
        with contextlib.suppress(ValueError, ZeroDivisionError):
            code(text, net=nn.Identity(), x=torch.ones(2))
        assert hooks() == before, text
        assert warnings.filters == filters, text


def test_the_users_own_global_hooks_stay_and_are_called() -> None:
    seen: list[str] = []
    handle = torch_modules.register_module_forward_hook(lambda module, args, out: seen.append(type(module).__name__))
    try:
        assert calls(code("net(x)", net=nn.Identity(), x=torch.ones(2))) == {"net": 1}
        nn.Tanh()(torch.ones(2))
    finally:
        handle.remove()
    assert seen == ["Identity", "Tanh"]


def test_an_id_that_is_used_again_is_another_module() -> None:
    recorder, source = ModuleCalls({}), choose_line_source(lambda file: False)
    recorder.start()
    source.start(None, recorder)
    try:
        for kind in (nn.Identity, nn.Tanh) * 20:
            kind()(torch.ones(1))
    finally:
        source.stop()
    record = recorder.stop()
    (native,) = record.streams
    _, _, number = record.calls(native, 0, 1 << 62)
    assert [record.names[n] for n in number] == ["Identity", "Tanh"] * 20


class Sleeps(nn.Module):
    def forward(self, x: Any) -> Any:
        time.sleep(0.01)
        return x * 2


def test_a_module_that_the_backward_pass_calls_again_has_both_calls_in_its_row() -> None:
    """A checkpoint sleeps once forward and once in the backward pass."""
    from torch.utils.checkpoint import checkpoint

    module, x = Sleeps(), torch.ones(4, requires_grad=True)
    made = profile(lambda: checkpoint(lambda a: module(a).exp(), x, use_reentrant=False).sum().backward())
    (row,) = made.modules.itertuples()
    assert row.calls == 2
    assert row.forward_time >= 0.01
    assert row.backward_cpu_time >= 0.01
    assert row.forward_time + row.backward_cpu_time < made.wall_time


def test_a_module_that_no_variable_names_is_called_by_its_class_not_by_where_that_was_made() -> None:
    class Local(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2

    made = profile(lambda: Local()(torch.ones(2)))
    assert made.modules["name"].tolist() == ["Local"]
