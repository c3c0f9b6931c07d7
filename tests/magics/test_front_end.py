"""What a kernel sends to its front end while timed code runs, of a planted session and of planted widgets."""

from __future__ import annotations

import sys
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from torchbench_magic.notebook.front_end import held_back

CELL: dict[str, Any] = {"header": {"msg_id": "the cell"}}
SLIDER: dict[str, Any] = {"header": {"msg_id": "of a slider"}}


class Session:
    """Sends to nowhere."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []

    def send(self, stream: Any, message: Any, content: Any = None, parent: Any = None, ident: Any = None) -> str:
        kind = message if isinstance(message, str) else message["header"]["msg_type"]
        self.sent.append((kind, content if isinstance(message, str) else message["content"]))
        return "sent"


class Shell:
    """What is asked of a shell in a kernel."""

    def __init__(self) -> None:
        self.session = Session()
        self.kernel = SimpleNamespace(session=self.session)

    def get_parent(self) -> dict[str, Any]:
        return CELL

    def display(self, text: str, parent: dict[str, Any] = CELL) -> Any:
        message = {"header": {"msg_type": "display_data"}, "parent_header": parent["header"], "content": text}
        return self.session.send("iopub", message | {"content": {"data": text}}, ident=b"display_data")

    def tell(self, kind: str, comm: str, parent: dict[str, Any] = CELL) -> Any:
        return self.session.send("iopub", kind, {"comm_id": comm}, parent=parent, ident=b"comm")


class Counted:
    """Drops everything."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def __call__(self, kind: str) -> bool:
        self.kinds.append(kind)
        return True


class Widget:
    def __init__(self, shell: Shell, comm: str) -> None:
        self.shell, self.comm = shell, comm

    def send_state(self) -> None:
        self.shell.tell("comm_msg", self.comm)

    def close(self) -> None:
        known().pop(self.comm)
        self.shell.tell("comm_close", self.comm)


def known() -> dict[str, Any]:
    return sys.modules["ipywidgets.widgets.widget"]._instances  # type: ignore[no-any-return]


@pytest.fixture
def widgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipywidgets.widgets.widget", SimpleNamespace(_instances={}))


def test_what_answers_the_cell_is_held_back_and_all_else_goes_on() -> None:
    shell, counted = Shell(), Counted()
    with held_back(shell, counted):
        assert shell.display("of the code") is None
        shell.session.send("iopub", "clear_output", {"wait": False}, parent=CELL)
        shell.tell("comm_msg", "one")
        assert shell.display("of a slider", SLIDER) == "sent"
        shell.tell("comm_msg", "of a slider", SLIDER)
        shell.session.send("iopub", "status", {"execution_state": "busy"}, parent=CELL)
    assert shell.display("after") == "sent"
    assert [kind for kind, _ in shell.session.sent] == ["display_data", "comm_msg", "status", "display_data"]
    assert counted.kinds == ["displays", "", "widgets"]
    assert "send" not in vars(shell.session)


@pytest.mark.usefixtures("widgets")
def test_widgets_end_as_the_front_end_knows_them() -> None:
    shell = Shell()
    known().update({name: Widget(shell, name) for name in ("changed", "closed", "left alone")})
    with suppress(KeyboardInterrupt), held_back(shell, Counted()):
        known()["made"] = Widget(shell, "made")
        shell.tell("comm_open", "made")
        shell.tell("comm_msg", "made")
        shell.tell("comm_msg", "changed")
        shell.tell("comm_msg", "changed")
        known()["closed"].close()
        raise KeyboardInterrupt
    assert shell.session.sent == [("comm_close", {"comm_id": "closed"}), ("comm_msg", {"comm_id": "changed"})]
    assert known().keys() == {"changed", "left alone"}


def test_figures_that_the_code_leaves_open_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    figures, counted = {1}, Counted()
    pyplot = SimpleNamespace(get_fignums=lambda: sorted(figures), close=figures.discard)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", pyplot)  # type: ignore[arg-type]
    with held_back(Shell(), counted):
        figures.update({2, 3})
    assert figures == {1}
    assert counted.kinds == ["displays", "displays"]


def test_without_a_kernel_nothing_is_asked() -> None:
    counted = Counted()
    with held_back(SimpleNamespace(), counted):
        pass
    assert counted.kinds == []
