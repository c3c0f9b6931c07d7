"""JavaScript without comments and spaces is the same program; every test in a browser runs what came of ours."""

from __future__ import annotations

import pytest

from torchbench_magic.show.javascript import shortened


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("// alone\n//\nf( a, b );  // call\n", "f(a,b);"),
        ("const a = 1\nconst b = 2;", "let a=1\nlet b=2;"),
        ("return  -a - -b + +c;", "return-a- -b+ +c;"),
        ('f("a  b//c", \'//\');', 'f("a  b//c",\'//\');'),
        ('if (/[/ "]  x/u.test( a )) b = c / d / e;', 'if(/[/ "]  x/u.test(a))b=c/d/e;'),
        ("x = `a  ${f( `}  ${y}` )}  b`;", "x=`a  ${f(`}  ${y}`)}  b`;"),
        ("const css = `\n  a b { c: d } /* why */\n`;", "let css=`\na b { c: d }\n`;"),
        ("class A {\n  b() {\n    return c\n  }\n\n  get d() { e(); }\n}", "class A{b(){return c}get d(){e()}}"),
    ],
)
def test_only_what_people_read_is_left_out(text: str, short: str) -> None:
    assert shortened(text) == short + "\n"


def test_text_that_looks_like_a_comment_is_refused() -> None:
    with pytest.raises(ValueError, match="no comment but text"):
        shortened('f("a // b");')
