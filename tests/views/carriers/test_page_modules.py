"""What an output brings to its page: the modules that draw it, where nobody else has brought them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from torchbench_magic.show import html, javascript
from torchbench_magic.show.javascript import packed_text, self_unpacking, shown_on, together, versioned, with_modules
from torchbench_magic.show.renderers import mimebundle
from torchbench_magic.timing import view

from ..builders import HOSTILE, comparison_of, profile_of
from ..drawing.test_flame import profiled
from ..profiling.test_memory import made as memory_profile
from ..sent import brought, left_out, sent, unpacked

FORGED = (*HOSTILE, f"<script data-needs={versioned('flame')}>", f"<script data-brings={versioned('table')}>")


class Held:
    """A page on which these modules are."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def missing(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if name.rpartition("-")[0] not in self.names]


def test_an_output_of_which_nothing_is_known_brings_all_that_draws_it_once() -> None:
    assert brought(mimebundle(comparison_of())["text/html"]) == ["table_explorer"]
    assert brought(mimebundle(profiled())["text/html"]) == ["table", "flame"]
    assert brought(mimebundle(memory_profile())["text/html"]) == ["table_explorer", "memory"]
    assert brought(comparison_of().to_html() or "") == ["table_explorer"]


def test_what_is_on_the_page_is_left_out_and_the_output_says_so_where_it_is_gone() -> None:
    with shown_on(Held("table_explorer", "table")):
        short, profile = (mimebundle(made)["text/html"] for made in (comparison_of(), profiled()))
    assert (brought(short), left_out(short)) == ([], {"table_explorer"})
    assert (brought(profile), left_out(profile)) == (["flame"], {"table"})
    assert "was deleted. Run the cell again" in short
    assert "was deleted" not in mimebundle(comparison_of())["text/html"]
    assert len(sent(short)) == 1
    assert len(short) < len(mimebundle(comparison_of())["text/html"]) - 14_000


def test_a_file_holds_everything_whatever_is_on_the_page() -> None:
    result = comparison_of()
    with shown_on(Held("table_explorer")):
        fragment = mimebundle(result)["text/html"]
    assert brought(html.around(fragment, "a file")) == ["table_explorer"]


def test_what_brings_its_modules_is_not_given_them_again() -> None:
    fragment = with_modules(html.render(view.document(comparison_of())))
    assert with_modules(fragment) == fragment


@pytest.mark.parametrize("name", FORGED)
def test_a_name_brings_nothing_and_keeps_nothing_away(name: str) -> None:
    assert brought(mimebundle(comparison_of(names=(name, "b")))["text/html"]) == ["table_explorer"]


def test_packed_text_has_no_sign_that_means_something_elsewhere() -> None:
    text = "".join(chr(32 + n * n % 9000) for n in range(20_000))
    assert unpacked(packed_text(text)) == text
    assert not set(packed_text(text)) & set("\"'\\<&$`{} \n")


def test_an_older_version_of_a_module_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    before = javascript.versioned("table")
    assert re.fullmatch(r"table-[0-9a-f]{8}", before)
    assert before == javascript.versioned("table")
    assert javascript.versioned("flame")[-8:] != before[-8:]
    older = javascript._Module(javascript._module("makers").text + "// older\n", (), ())
    real = javascript._module
    monkeypatch.setattr(javascript, "_module", lambda name: older if name == "makers" else real(name))
    javascript.versioned.cache_clear()
    assert javascript.versioned("table") != before
    javascript.versioned.cache_clear()


def test_modules_are_sent_as_they_are_written_but_for_what_only_people_read() -> None:
    sent_lines = javascript._text_to_bring(javascript._KINDS).splitlines()
    code = set(sent_lines)
    for name in javascript._ordered(("page", *javascript._KINDS)):
        text = javascript._EXPORT.sub("", javascript._module(name).text)
        lines = [line.strip() for line in text.splitlines()]
        assert [line for line in lines if line and not line.startswith("//") and line not in code] == [], name
    assert not [line for line in sent_lines if not line or line[0] in " /"]


def test_a_saved_widget_holds_half_of_its_module() -> None:
    text = javascript.es_module("widget")
    assert len(self_unpacking(text)) < 0.5 * len(text)


def test_pictures_and_tables_are_packed() -> None:
    made = mimebundle(profile_of())["text/html"]
    (spec,) = sent(made)
    assert spec["kind"] == "profile"
    assert "np.argwhere" in "".join(str(table) for table in spec["tables"])


@pytest.mark.parametrize("kind", ["widget", *javascript._KINDS])
def test_no_two_modules_that_stand_in_one_text_have_a_name_in_common(kind: str) -> None:
    """Modules that only one imports are parts of it (`_text_to_bring`), and a widget's are all one text."""
    declared = re.compile(r"^(?:export )?(?:async )?(?:const|let|function|class) ([^;]*)", re.MULTILINE)
    names: list[str] = []
    for module in javascript._ordered((kind,)):
        for found in declared.findall(javascript._module(module).text):
            first = re.match(r"[\w$]+", found)
            names += [first[0]] if first else []
            names += re.findall(r"(?<=, )([A-Z_]{3,})(?= = )", found.partition("(")[0])
    assert len(names) > 3
    assert sorted(set(names)) == sorted(names)


def test_the_views_of_one_output_have_their_data_in_one_script() -> None:
    result = profiled()
    fragment, apart = mimebundle(result)["text/html"], result.to_html() or ""
    assert (fragment.count("<script data-needs="), apart.count("<script data-needs=")) == (1, 2)
    assert [next(iter(each)) for each in sent(fragment)] == ["kind", "title"]
    assert brought(fragment) == ["table", "flame"]


def test_large_data_and_what_is_no_script_of_data_stay_apart() -> None:
    made = [javascript.data_script(name, name, packed_text(f'["{name}"]')) for name in ("table", "flame")]
    assert sent(together("".join(made))) == [["table"], ["flame"]]
    assert together("".join(made) + "<p>") == "".join(made) + "<p>"
    large = javascript.data_script("table", "table", "0" * 20_000)
    assert together(large + made[1]) == large + made[1]
