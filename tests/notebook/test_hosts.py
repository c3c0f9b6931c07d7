"""The page that outputs come to stand on, and what a kernel sends to it while timed code runs."""

from __future__ import annotations

import sys
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.utils.capture import capture_output

from torchbench_magic.notebook.hosts import NotebookPage, held_back, host_of, page_of

# ==== notebook pages ==================================================================================================
# What a kernel knows of the page that its outputs come to stand on.


class Shell:
    """A kernel's shell that runs a cell of a front end."""

    display_pub: Any = None
    kernel: Any = SimpleNamespace()

    def __init__(self) -> None:
        self.request: dict[str, Any] = {}

    def get_parent(self) -> dict[str, Any]:
        return self.request

    def asked(self, metadata: dict[str, Any], *, code: str = "x", session: str = "s", stdin: bool = True) -> Any:
        """The page of a cell that is run now."""
        self.runs = getattr(self, "runs", 0) + 1
        self.request = {
            "header": {"msg_type": "execute_request", "session": session, "msg_id": str(self.runs)},
            "metadata": metadata,
            "content": {"code": code, "allow_stdin": stdin},
        }
        return page_of(self)


def lab(cell: str, *deleted: str) -> dict[str, Any]:
    return {"cellId": cell, "deletedCells": list(deleted), "recordTiming": False}


def brings(page: NotebookPage, *names: str) -> list[str]:
    return list(page.missing(names or ("table",)))


def test_two_cells_hold_a_module_and_every_eleventh_that_comes_without_it() -> None:
    shell = Shell()
    holders = [n for n in range(40) if brings(shell.asked(lab(f"c{n}")))]
    assert holders == [0, 1, 12, 23, 34]


def test_one_output_of_a_cell_brings_it() -> None:
    page = Shell().asked(lab("a"))
    assert [brings(page), brings(page), brings(page, "table", "flame")] == [["table"], [], ["flame"]]


@pytest.mark.parametrize("then", [lab("a"), lab("z", "a")], ids=["run again", "deleted"])
def test_a_cell_that_holds_no_module_any_more_has_a_successor(then: dict[str, Any]) -> None:
    shell = Shell()
    assert brings(shell.asked(lab("a")))
    assert brings(shell.asked(lab("b")))
    assert not brings(shell.asked(lab("c")))
    shell.asked(then)  # and shows nothing of ours
    assert brings(shell.asked(lab("d")))


def test_a_page_that_is_loaded_again_is_another_one() -> None:
    shell = Shell()
    for cell in "abc":
        page = shell.asked(lab(cell))
        brings(page)
    assert brings(shell.asked(lab("c"), session="after a reload"))


def test_a_program_that_runs_a_notebook_names_no_cell_and_runs_each_once() -> None:
    shell = Shell()
    texts = ["%timer a", "%timer b", "%timer c", "%timer a", "%timer d"]
    found = [bool(brings(shell.asked({}, code=text, stdin=False))) for text in texts]
    assert found == [True, True, False, True, False]


@pytest.mark.parametrize(
    "metadata",
    [{}, {"cellId": "a"}, {"cellId": "vscode-notebook-cell:/x.ipynb#W0", "deletedCells": []}, {"deletedCells": []}],
    ids=["no cell", "console", "VS Code", "no id"],
)
def test_where_the_cell_or_its_page_is_not_known_each_output_stands_alone(metadata: dict[str, Any]) -> None:
    assert Shell().asked(metadata) is None


def test_outputs_of_colab_stand_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLAB_RELEASE_TAG", "release-colab")
    assert Shell().asked(lab("a")) is None


def test_a_shell_without_a_front_end_has_no_page_and_draws_nothing(loaded: Any) -> None:
    assert page_of(loaded) is None
    assert [host_of(loaded).draws, host_of(Shell()).draws] == [False, True]


def test_what_is_captured_stands_alone(loaded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell()
    shell.asked(lab("a"))
    monkeypatch.setattr(type(loaded), "kernel", shell.kernel, raising=False)
    monkeypatch.setattr(type(loaded), "get_parent", shell.get_parent, raising=False)
    assert page_of(loaded) is not None
    with capture_output():
        assert page_of(loaded) is None


# ==== front end =======================================================================================================
# What a kernel sends to its front end while timed code runs, of a planted session and of planted widgets.


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


class KernelShell:
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
    def __init__(self, shell: KernelShell, comm: str) -> None:
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
    shell, counted = KernelShell(), Counted()
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
    shell = KernelShell()
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
    with held_back(KernelShell(), counted):
        figures.update({2, 3})
    assert figures == {1}
    assert counted.kinds == ["displays", "displays"]


def test_without_a_kernel_nothing_is_asked() -> None:
    counted = Counted()
    with held_back(SimpleNamespace(), counted):
        pass
    assert counted.kinds == []
