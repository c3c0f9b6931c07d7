"""What a kernel knows of the page that its outputs come to stand on."""

from __future__ import annotations

from typing import Any

import pytest
from IPython.utils.capture import capture_output

from torchbench_magic.notebook.hosts import NotebookPage, page_of


class Shell:
    """A kernel's shell that runs a cell of a front end."""

    display_pub: Any = None

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


def test_a_shell_without_a_front_end_has_no_page(loaded: Any) -> None:
    assert page_of(loaded) is None


def test_what_is_captured_stands_alone(loaded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell()
    shell.asked(lab("a"))
    monkeypatch.setattr(type(loaded), "get_parent", shell.get_parent, raising=False)
    assert page_of(loaded) is not None
    with capture_output():
        assert page_of(loaded) is None
