"""Names that code reads, to bytes and back; the other side is a fresh dict of this process, or a real engine."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
import torch

from torchbench_magic.cell_body import CellText
from torchbench_magic.cluster.engines import pack_names
from torchbench_magic.cluster.on_engine import made_names
from torchbench_magic.cluster.rank_job import _sent_text, pack_cells
from torchbench_magic.cluster.rank_on_engine import known_cells
from torchbench_magic.errors import BodyError
from torchbench_magic.process.send import Parcel


def namespace(text: str = "", **names: Any) -> dict[str, Any]:
    made = {"__name__": "__main__", **names}
    exec(compile(text, "<cell-7>", "exec"), made)
    return made


def packed(code: str, names: dict[str, Any], **more: Any) -> Parcel:
    return pack_names([compile(code, "<cell>", "exec")], names, **more)


def test_only_what_the_code_reads_travels_with_its_size() -> None:
    made = packed("y = x + 1", namespace(x=torch.ones(1000), unused=torch.ones(10_000)))
    assert list(made.sizes) == ["x"]
    assert 4000 < made.sizes["x"] < 6000
    assert _sent_text(made.sizes).startswith("sent: x 4.")
    assert made_names(made.data)["x"].sum() == 1000
    assert not made.has_code


def test_functions_find_what_the_engine_gives_among_their_globals() -> None:
    names = namespace("def f():\n    return g() + rank\ndef g():\n    return base", base=10, rank=5)
    made = packed("f()", names, given={"rank"})
    assert made.has_code
    assert made.files == {"<cell-7>"}
    there = made_names(made.data)
    there["rank"] = 1
    assert there["f"]() == 11


def test_a_model_that_has_no_shape_yet_travels() -> None:
    names = namespace(net=torch.nn.Sequential(torch.nn.LazyLinear(2)), meta=torch.ones(3, device="meta"))
    there = made_names(packed("net(meta)", names).data)
    assert there["net"](torch.ones(4, 3)).shape == (4, 2)
    assert there["meta"].shape == (3,)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ((n for n in range(3)), "cannot pickle 'generator' object"),
        (torch.ones(2, requires_grad=True) * 2, "use .detach()"),
        ([open(__file__)], "an open file cannot be copied"),  # noqa: SIM115
    ],
)
def test_a_name_that_cannot_travel_is_named_in_one_line(value: object, why: str) -> None:
    with pytest.raises(BodyError) as caught:
        packed("held", namespace(held=value))
    assert str(caught.value).startswith("`held` (")
    assert why in str(caught.value)
    assert str(caught.value).endswith(("make `held` in the cell", "use .detach()"))
    if isinstance(value, list):
        value[0].close()


def test_what_is_over_the_limit_is_refused() -> None:
    names = namespace(small=torch.ones(10), large=torch.ones(300_000), words=["a" * 1000, "b" * (2 << 20)])
    for name, what in (("large", "tensors"), ("words", "variables")):
        with pytest.raises(BodyError) as caught:
            packed(f"small, {name}", names, limit=1 << 20)
        assert str(caught.value).endswith(
            f"cannot be sent to an engine: the {what} take more than 1 MiB: make them in the cell, which runs on each"
            " engine"
        )


def test_what_cannot_be_made_there_is_told_why() -> None:
    names = namespace("class Kind:\n    def __reduce__(self): return (int, ('no number',))\nheld = Kind()")
    made = packed("held", names)
    with pytest.raises(BodyError, match=r"variables cannot be made on the engine \(ValueError: invalid literal"):
        made_names(made.data)


def test_a_module_beside_the_notebook_travels_and_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = types.ModuleType("tb_mine")
    exec("N = 3\ndef f(): return N\ndef unused(): pass", vars(mine))
    monkeypatch.setitem(sys.modules, "tb_mine", mine)
    there = made_names(packed("tb_mine.f()", namespace(tb_mine=mine)).data)["tb_mine"]
    assert there is not mine
    assert there.f() == 3
    assert not hasattr(there, "unused")
    assert sys.modules["tb_mine"] is mine


def test_modules_travel_by_their_names_and_the_shells_names_not_at_all() -> None:
    made = packed("torch.ones(3), get_ipython()", namespace(torch=torch, get_ipython=lambda: None))
    assert list(made.sizes) == ["torch"]
    assert isinstance(made_names(made.data)["torch"], types.ModuleType)


def test_lines_of_code_that_travels_stand_on_their_cells() -> None:
    import linecache

    text = CellText.of("%%tprofile --engines two\na = 1\nb = 2", "<cell-9>", 4)
    cells = pack_cells(["<cell-9>", "elsewhere.py"], {"<cell-9>": text}.get)
    with known_cells(cells) as text_of:
        found = text_of("<cell-9>")
        assert found == text
        assert text_of("elsewhere.py") is None
        assert linecache.getline("<cell-9>", 3) == "b = 2\n"
    assert linecache.getline("<cell-9>", 3) == ""
