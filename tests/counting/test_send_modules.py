"""Modules are counted as the notebook's process has them, whatever their files say; what cannot travel is told."""

from __future__ import annotations

import functools
import importlib
import io
import logging
import socket
import sqlite3
import subprocess
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  (torch's name for it)

from torchbench_magic.cell_body import Body
from torchbench_magic.counting import client
from torchbench_magic.counting.client import CodeFailed, Server
from torchbench_magic.counting.count import Job, count_instructions
from torchbench_magic.errors import CountError
from torchbench_magic.process.send import pack_variables
from torchbench_magic.process.send_modules import Loaded

from .test_client import refused

LOCAL = """
import functools, threading, torch
SCALE = 2
LOCK = threading.Lock()
def helper(x):
    return x * SCALE
def f(x):
    return helper(x) + 1
def guarded(x):
    with LOCK:
        return x
@functools.lru_cache
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
class Net(torch.nn.Module):
    def forward(self, x):
        from tb_package import sub
        return sub.act(x)
"""
LOOP = "\ndef f(x):\n    for i in range(50):\n        x = x * 2\n    return x\n"


def total(server: Server, text: str, names: dict[str, Any], number: int = 5) -> int:
    return count_instructions(Job(Body(text, "<cell>"), names, number), server)[0][0].total


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A notebook in a folder with modules; the folder is on the path as '', as in a kernel."""
    (tmp_path / "tb_local.py").write_text(LOCAL)
    (tmp_path / "tb_package").mkdir()
    (tmp_path / "tb_package" / "__init__.py").write_text("")
    (tmp_path / "tb_package" / "sub.py").write_text("from .deep import k\ndef act(x):\n    return k(x)\n")
    (tmp_path / "tb_package" / "deep.py").write_text("import torch\ndef k(x):\n    return torch.tanh(x)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a file that is edited within a second is read again
    importlib.invalidate_caches()
    made: dict[str, Any] = {"__name__": "__main__"}
    exec("import torch, tb_local, tb_package.sub\nx = torch.ones(4, 8)\nnet = tb_local.Net()", made)
    yield made
    for name in [n for n in sys.modules if n.partition(".")[0] in ("tb_local", "tb_package")]:
        del sys.modules[name]


@pytest.mark.valgrind
@pytest.mark.slow
def test_a_module_is_counted_as_it_is_loaded_not_as_its_file_reads(server: Server, names: dict[str, Any]) -> None:
    module, file = names["tb_local"], Path("tb_local.py")
    loaded = total(server, "tb_local.f(x)", names)
    assert total(server, "tb_local.f(x)", names) == loaded
    file.write_text(LOCAL + LOOP)
    assert total(server, "tb_local.f(x)", names) == loaded, "an edited file that is not loaded anew"
    importlib.reload(module)
    longer = total(server, "tb_local.f(x)", names)
    assert longer > 5 * loaded
    file.unlink()
    assert total(server, "tb_local.f(x)", names) == longer, "the file is gone, the module is not"
    module.f = lambda x: x
    assert total(server, "tb_local.f(x)", names) < loaded / 5
    file.write_text(LOCAL)
    importlib.invalidate_caches()
    importlib.reload(module)
    assert total(server, "tb_local.f(x)", names) == loaded
    module.SCALE = torch.ones(4, 8)
    assert total(server, "tb_local.f(x)", names) < loaded, "a product of two tensors instead of with a number"


@pytest.mark.valgrind
@pytest.mark.slow
def test_packages_imports_inside_functions_and_names_as_texts_are_found(server: Server, names: dict[str, Any]) -> None:
    direct = total(server, "tb_package.sub.act(x)", names)
    assert direct > total(server, "torch.tanh(x)", names)
    network = total(server, "net(x)", names)
    assert network > direct
    assert total(server, "import tb_package.deep\ntb_package.deep.k(x)", names) > 0
    assert total(server, "getattr(tb_local, 'f', None)(x)", names) > total(server, "tb_local.helper(x)", names)
    total(server, "assert tb_local.fib(20) == 6765", names)
    total(server, "tb_local.SCALE += 1\nassert tb_local.SCALE == tb_local.helper(torch.ones(1))", names, 1)
    sys.modules["tb_package.deep"].k = lambda x: x  # what `sub` has of it stays
    assert total(server, "tb_package.sub.act(x)", names) == direct
    sys.modules["tb_package.sub"].k = lambda x: x
    assert total(server, "net(x)", names) < network


@pytest.mark.valgrind
def test_a_module_that_the_code_was_not_seen_to_use_is_not_read_from_its_file(
    server: Server, names: dict[str, Any]
) -> None:
    with pytest.raises(CodeFailed, match="imports the module tb_local in a way that was not recognised"):
        total(server, "import importlib\nimportlib.import_module(''.join(('tb_', 'local'))).f(x)", names)


@pytest.mark.valgrind
@pytest.mark.slow
def test_what_stands_in_the_place_of_an_installed_function_is_counted(
    server: Server, names: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    names |= {"F": F, "layer": torch.nn.Linear(8, 8), "act": torch.nn.ReLU()}
    own = {text: total(server, text, names) for text in ("F.relu(x)", "layer(x)", "act(x)")}
    gelu = total(server, "F.gelu(x)", names)
    original, forward = F.relu, torch.nn.Linear.forward
    bound = names | {"original": original}
    for replacement in (_as_own(bound), functools.wraps(original)(_as_own(bound))):
        monkeypatch.setattr(F, "relu", replacement)
        assert total(server, "F.relu(x)", bound) > 1.8 * own["F.relu(x)"]
        assert total(server, "act(x)", bound) > 1.3 * own["act(x)"], "torch's own code finds it too"
    monkeypatch.setattr(F, "relu", F.gelu)
    assert total(server, "F.relu(x)", names) == pytest.approx(gelu, rel=0.01)
    monkeypatch.setattr(F, "relu", original)
    replaced = dict(names, forward=forward)
    exec("def plus(self, x):\n    return forward(self, x) + 1", replaced)
    monkeypatch.setattr(torch.nn.Linear, "forward", replaced["plus"])
    assert total(server, "layer(x)", replaced) > own["layer(x)"]
    monkeypatch.undo()
    assert total(server, "F.relu(x)", {"F": F, "x": names["x"]}) == own["F.relu(x)"]


def _as_own(names: dict[str, Any]) -> Callable[..., Any]:
    """A function whose globals are ``names``, as one of a notebook."""
    exec("def mine(x, inplace=False):\n    return original(original(x))", names)
    made: Callable[..., Any] = names["mine"]
    return made


@pytest.mark.valgrind
@pytest.mark.slow
def test_code_that_imports_what_takes_long_is_counted_by_a_second_server(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An optimizer's step imports torch._dynamo, a minute under valgrind, for each count."""
    asked: list[tuple[str, ...]] = []

    class Second:
        def __init__(self, preloaded: list[str], *, idle: float | None) -> None:
            asked.append(tuple(preloaded))

        def count(self, job: Any, **_: Any) -> Any:
            raise CountError("counted there")

    monkeypatch.setattr(client, "Server", Second)
    monkeypatch.setattr(server, "_fuller", None)
    weight = torch.ones(3, requires_grad=True)
    names = {"opt": torch.optim.SGD([weight], lr=0.1), "x": torch.ones(2)}
    for text in ("opt.zero_grad()", "try:\n    opt.step()\nexcept BaseException:\n    pass"):
        with pytest.raises(CountError, match="counted there"):
            total(server, text, names)
    assert asked == [("torch._dynamo",)]
    assert total(server, "x + 1", names) > 0


@pytest.mark.valgrind
@pytest.mark.slow
def test_an_optimizer_is_counted(server: Server) -> None:
    weight = torch.ones(3, requires_grad=True)
    weight.grad = torch.ones(3)
    names = {"opt": torch.optim.SGD([weight], lr=0.1)}
    first = total(server, "opt.zero_grad()", names)
    assert first > 0
    assert total(server, "opt.zero_grad()", names) == first
    assert total(server, "opt.step()", names) > 0


@pytest.mark.slow
def test_handles_are_refused_in_one_line_and_never_replaced_by_a_look_alike(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    process = subprocess.Popen(["true"])
    process.wait()
    database = sqlite3.connect(":memory:")
    with open(tmp_path / "file") as text, open(tmp_path / "file", "rb") as raw, socket.socket() as connection:
        for value, what in (
            (text, "an open file"),
            (raw, "an open file"),
            (types.SimpleNamespace(inside=text), "an open file"),
            (memoryview(bytearray(8)), "a memoryview"),
        ):
            said = refused(value)
            assert said.endswith(f"{what} cannot be copied; make `v` inside the statement"), said
        of_thread = (threading.current_thread(), threading.RLock(), threading.Event())
        loader = iter(torch.utils.data.DataLoader([1, 2]))
        for value in (connection, process, *of_thread, database, weakref.ref(process), loader, (n for n in [1])):
            said = refused(value)
            assert "cannot" in said.partition("cannot be sent to the counting process: ")[2], said
            assert said.endswith("; make `v` inside the statement"), said
    database.close()
    for value in (io.BytesIO(b"abc"), io.StringIO("abc"), logging.getLogger("x")):
        pack_variables(["v"], {"v": value}).close()


def test_what_a_module_holds_is_named_with_its_module_and_only_if_the_code_uses_it(names: dict[str, Any]) -> None:
    with pytest.raises(CountError) as caught:
        pack_variables(["tb_local", "guarded", "x"], names)
    assert str(caught.value) == (
        "`tb_local` (module) cannot be sent to the counting process: the code may use `tb_local.guarded` (function),"
        " and cannot pickle '_thread.lock' object"
    )
    pack_variables(["tb_local", "f", "x"], names).close()


@pytest.mark.slow
def test_nothing_counts_as_replaced_in_an_ordinary_process_and_cloudpickle_is_left_as_it_was(
    names: dict[str, Any],
) -> None:
    code = (
        "import torch, pandas, matplotlib, IPython\n"
        "from torchbench_magic.process.send_modules import Loaded\n"
        "found = Loaded.now(globals())\nassert not found.local and not found.replaced, found"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True)
    before = set(cloudpickle.list_registry_pickle_by_value())
    pack_variables(["tb_local", "f", "x"], names).close()
    assert set(cloudpickle.list_registry_pickle_by_value()) == before
    assert {"tb_local", "tb_package", "tb_package.sub"} <= Loaded.now(names).local.keys()
    assert not {"torch", "pytest", "pathlib", "cloudpickle", "torchbench_magic"} & Loaded.now(names).local.keys()
