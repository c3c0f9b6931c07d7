"""``# --- NAME`` divides a cell."""

from __future__ import annotations

import pytest

from torchbench_magic.errors import SectionError
from torchbench_magic.notebook.sections import split_sections


def names(text: str) -> list[str | None]:
    return [section.name for section in split_sections(text).alternatives]


def test_headers_name_the_alternatives_and_setup_is_none_of_them() -> None:
    sections = split_sections("# --- setup\nx = 1\n# --- mul sum\na(x)\n# --- bmm\nb(x)\n", first_line=2)
    assert sections.setup is not None
    assert (sections.setup.text, sections.setup.first_line) == ("x = 1\n", 3)
    assert [(s.name, s.text, s.first_line) for s in sections.alternatives] == [
        ("mul sum", "a(x)\n", 5),
        ("bmm", "b(x)\n", 7),
    ]


def test_setup_may_stand_anywhere_and_before_a_single_alternative() -> None:
    for text in ("# --- setup\nx = 1\n# --- bmm\nb(x)\n", "# --- a\n1\n# --- setup\nx = 1\n# --- b\n2\n"):
        assert split_sections(text).setup is not None
        assert names(text) == (["bmm"] if "bmm" in text else ["a", "b"])


@pytest.mark.parametrize(
    "text",
    [
        "# -----\n# --- load data ---\nx\n",
        "#--- a\nx\n",
        "# ---- a\nx\n",
        "# ---\nx\n",
        "if x:\n    # --- a\n    y\n",
        's = """\n# --- a\n# --- b\n"""\n',
        "f(\n# --- a\nx)\n",
        "x  # --- a\n",
    ],
)
def test_dividers_strings_and_inner_comments_are_no_headers(text: str) -> None:
    assert names(text) == [None]
    assert split_sections(text).alternatives[0].text == text


def test_only_comments_and_blank_lines_stand_before_the_first_header() -> None:
    assert names("\n# what this is\n\n# --- a\n1\n# --- b\n2\n") == ["a", "b"]
    assert names("# -- which is faster?\n# --- a\n1\n# --- b\n2\n") == ["a", "b"]
    with pytest.raises(SectionError, match=r"line 5: code before the first section, 'a'"):
        split_sections("x = 1\n# --- a\n1\n# --- b\n2\n", first_line=5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# --- a\n1\n# --- a\n2\n", r"lines 2 and 4: two sections have the name 'a'"),
        ("# --- setup\n1\n# --- setup\n2\n# --- a\n3\n", r"lines 2 and 4: two setup sections"),
        ("# --- a\n1\n", r"line 2: 'a' is the only section, there is nothing to compare it with"),
        ("# --- setup\n1\n", r"line 2: 'setup' is the only section, there is nothing to time"),
        ("# --- a\n1\nx.sum(\n# --- b\n2\n", r"line 4: '\(' was never closed, so the sections below it"),
        ("# --- a\n\n# comment\n# --- b\n2\n", r"line 2: section 'a' is empty"),
        ("# --- a\n1\n# --- b\n", r"line 4: section 'b' is empty"),
    ],
)
def test_sections_that_cannot_be_compared_are_one_line_with_the_place(text: str, message: str) -> None:
    with pytest.raises(SectionError, match=message) as caught:
        split_sections(text, first_line=2)
    assert "\n" not in str(caught.value)


def test_text_that_does_not_tokenize_keeps_the_headers_above_the_error() -> None:
    assert names("# --- a\n1\n# --- b\nx = '''\n") == ["a", "b"]


def test_sections_are_cut_from_the_text_as_it_was_written() -> None:
    python = "# --- setup\nget_ipython().system('ls')\n# --- a\n1\n"
    written = "# --- setup\n!ls\n# --- a\n1\n"
    setup = split_sections(python, written).setup
    assert setup is not None
    assert setup.text == "!ls\n"


@pytest.mark.parametrize(
    "near",
    [
        *("# -- two", "#--- two", "# ---two", "#---two", "#-- two", "# ---- two", "#%% two", "# %% two", "## --- two"),
        *("# --- two ---", "#--- two ---", "# -- two --", "# ---- two ----", "# ---two---", "# --- two -"),
        *("# === two", "#== two", "# === two ===", "# ==== two", "# — two", "# – two", "# —— two ——", "#—two"),
        *("# ── two", "# ─── two ───", " # --- two", "    # --- two", "\t# --- two"),
    ],
)
def test_a_header_that_is_nearly_one_is_an_error_and_not_part_of_the_section_above(near: str) -> None:
    with pytest.raises(SectionError, match=r"line 4: `.*two.*` looks like a header: write `# --- two`") as caught:
        split_sections(f"# --- one\n1\n{near}\n2\n# --- three\n3\n", first_line=2)
    assert "\n" not in str(caught.value)


def test_nearly_headers_alone_are_an_error_where_they_divide_the_whole_cell() -> None:
    with pytest.raises(SectionError, match=r"line 1: `#--- one` looks like a header"):
        split_sections("#--- one\n1\n#--- two\n2\n")
    with pytest.raises(SectionError, match=r"line 1: `# -- setup` looks like a header"):
        split_sections("# -- setup\nx = 1\n# --- one\n1\n# --- two\n2\n")
    assert names("x = load()\n# -- work\nf(x)\n# -- more work\ng(x)\n") == [None]


@pytest.mark.parametrize(
    "comment",
    [
        "# - a list item",
        "# -> result",
        "# --> result",
        "#!shebang",
        "# %%",
        "#%%timeit f(x)",
        "# %time f(x)",
        "#--x",
        "# --flag of a command",
        "#x = 1 -- 2",
        "# -----",
        "# ----- load data -----",
        "#------ load data ---",
        "# ===== load",
        "# =====",
        "# ───────── load ─────────",
        "# a -- b",
        "# f(x) --- as above ---",
        "## load data",
        "# *** load data ***",
        "#---",
        "# — ",
        "# ===",
        "# two",
        "#: two",
        "#",
        "if 1:\n    # -- two\n    2",
        's = """\n# -- two\n"""',
        "f(\n# -- two\n1)",
        "if 1:\n    # --- two\n    2",
        "if 1:\n    2\n    # --- two\n    3",
        "for i in (\n  1,\n  # --- two\n  2):\n    pass",
        "x = 1  # --- two",
        "def f():\n    # --- two\n    return 1\nf()",
        "if 1:\n    if 2:\n        3\n    # --- two\n    4",
    ],
)
def test_other_comments_and_headers_within_a_block_are_no_headers(comment: str) -> None:
    assert names(f"# --- one\n{comment}\n1\n# --- three\n3\n") == ["one", "three"]


def test_a_header_that_only_a_space_has_moved_out_of_a_block_is_an_error() -> None:
    with pytest.raises(SectionError, match=r"line 4: ` # --- two` looks like a header"):
        split_sections("# --- one\nif 1:\n    2\n # --- two\n3\n# --- three\n3\n")
    with pytest.raises(SectionError, match=r"line 3: `  // --- two` looks like a header"):
        split_sections("// --- one\nx;\n  // --- two\ny;\n// --- three\nz;\n", language="c++")
    inside = split_sections("// --- one\n{\n  // --- two\ny;\n}\n// --- three\nz;\n", language="c++")
    assert [section.name for section in inside.alternatives] == ["one", "three"]


def test_dividers_in_a_cell_without_headers_stay_comments() -> None:
    for rule in ("# --- {} ---", "# === {}", "# — {}", "# -- {} --"):
        assert names(f"{rule.format('load')}\nx = 1\n{rule.format('work')}\nx\n") == [None]


# ---- C++ -----------------------------------------------------------------------------------------------------------

CPP = """\
// --- setup
auto x = torch::ones({3}); // --- not here
// --- global setup
#include <vector>
// --- by value
f(x);
// --- by reference
g(x);
"""


def cpp_names(text: str) -> list[str | None]:
    return [section.name for section in split_sections(text, language="c++").alternatives]


def test_a_cpp_cell_has_setup_global_setup_and_alternatives() -> None:
    sections = split_sections(CPP, first_line=2, language="c++")
    assert sections.setup is not None
    assert sections.global_setup is not None
    assert (sections.setup.first_line, sections.global_setup.text) == (3, "#include <vector>\n")
    assert [(s.name, s.text, s.first_line) for s in sections.alternatives] == [
        ("by value", "f(x);\n", 7),
        ("by reference", "g(x);\n", 9),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "/*\n// --- a\n// --- b\n*/ x;\n",
        'auto s = R"(\n// --- a\n)";\n',
        'auto s = R"mark(\n)"\n// --- a\n)mark";\n',
        "// -----\n// --- load data ---\nx;\n",
        "# --- a\n",
        "  // --- a\nx;\n",
        "x; // --- a\n",
    ],
)
def test_dividers_strings_and_other_comments_are_no_headers_in_cpp(text: str) -> None:
    assert cpp_names(text) == [None]


def test_what_looks_like_a_string_in_cpp_hides_no_header() -> None:
    assert cpp_names("// --- a\nauto n = 1'000;\n// --- b\nauto c = '\"';\n// --- c\nx; // it's\n// --- d\ny;\n") == [
        *"abcd"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "x;\n// --- a\n1;\n// --- b\n2;\n",
            r"line 2: code before the first section, 'a'; put it under `// --- setup`",
        ),
        ("// --- a\n/* nothing\n */\n// --- b\n2;\n", r"line 2: section 'a' is empty"),
        (
            "// --- global setup\n1;\n// --- global setup\n2;\n// --- a\n3;\n",
            r"lines 2 and 4: two global setup sections",
        ),
        ("// --- setup\n1;\n// --- global setup\n2;\n", r"there is nothing to time"),
    ],
)
def test_sections_of_cpp_that_cannot_be_compared_are_one_line(text: str, message: str) -> None:
    with pytest.raises(SectionError, match=message) as caught:
        split_sections(text, first_line=2, language="c++")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("near", ["// -- two", "//--- two", "// ---two", "/// --- two", "// ---- two"])
def test_a_header_of_cpp_that_is_nearly_one_is_an_error(near: str) -> None:
    with pytest.raises(SectionError, match=r"line 3: `.*` looks like a header: write `// --- two`"):
        split_sections(f"// --- one\n1;\n{near}\n2;\n", language="c++")


@pytest.mark.parametrize("comment", ["//--x;", "// --x;", "// - item", "// -> T", "/* // -- two */", "x; // -- two"])
def test_other_comments_of_cpp_are_not_nearly_headers(comment: str) -> None:
    assert cpp_names(f"// --- one\n{comment}\n1;\n// --- three\n3;\n") == ["one", "three"]


@pytest.mark.parametrize("name", ["Setup", "SETUP", "set up", "set-up", "Set_Up"])
def test_a_setup_that_is_spelt_otherwise_is_no_alternative(name: str) -> None:
    said = rf"line 1: '{name}' looks like `# --- setup`: write that, or use another name"
    with pytest.raises(SectionError, match=said):
        split_sections(f"# --- {name}\nx = 1\n# --- a\nx\n# --- b\nx + 1\n")
    assert split_sections("# --- setup a\nx = 1\n# --- b\nx + 1\n").setup is None
