"""Short names say the same: every test in a browser runs what came of ours."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

import pytest

from torchbench_magic.show import javascript
from torchbench_magic.show.javascript import renamed, shortened


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("let length = given.length, { a, b: c } = given;", "let e=given.length,{a:t,b:n}=given"),
        ("function f(one, { two = one, three: [four, ...five] }) { return { one, four: five, two() {}, [two]: 1 }; }",
         "function e(e,{two:t=e,three:[n,...r]}){return{one:e,four:r,two(){},[t]:1}}"),
        ("let one = 1; { let one = 2; f(one); } f(one, () => one);", "let e=1;{let e=2;f(e)}f(e,()=>e)"),
        ("let one = (two) => two.one, six = two => { let one = two; };", "let e=(e)=>e.one,t=t=>{let e=t}"),
        ("for (const [one, two] of all) say(`${one} one ${two ? `${two}` : \"one\"}`);",
         "for(let[e,t]of all)say(`${e} one ${t?`${t}`:\"one\"}`)"),
        ("class A extends B { get one() { return two; } one(two) { try { two(); } catch (one) { two = one; } } }",
         "class e extends B{get one(){return two}one(e){try{e()}catch(t){e=t}}}"),
        ("const one = 1; const two = { class: one, let: [one] }; for (let i = 0; i < two; i++) one(/one/, 'one');",
         "let e=1,t={class:e,let:[e]};for(let n=0;n<t;n++)e(/one/,'one')"),
        ("let one; ({ one, two: e } = f); one = e ? one : t;", "let n;({one:n,two:e}=f);n=e?n:t"),
        ("let one = (two, three = document) => ({ ...two, three });", "let e=(e,t=document)=>({...e,three:t})"),
    ],
)  # fmt: skip
def test_what_is_declared_is_named_anew_and_nothing_else(text: str, short: str) -> None:
    assert renamed(shortened(text)).replace("\n", "").rstrip(";") == short


@pytest.mark.parametrize(
    "text", ["switch (a) { case b: c; }", "var a;", "a: while (b) { break a; }", "class A { b = c; }", "a b {}", "{ a"]
)
def test_what_may_not_be_read_right_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"read right|not closed"):
        renamed(text)


@pytest.mark.parametrize("names", [("table", "flame", "timeline"), javascript._KINDS])
def test_what_comes_of_ours_is_shorter_and_a_program(names: Sequence[str]) -> None:
    text = javascript._text_to_bring(tuple(names))
    assert len(javascript.packed_text(text)) < 0.92 * len(javascript.packed_text(_with_its_names(names)))
    if (node := shutil.which("node")) is not None:
        checked = subprocess.run([node, "--check", "-"], input=text.encode(), capture_output=True, check=False)
        assert checked.stderr == b""


def _with_its_names(names: Sequence[str]) -> str:
    ordered = javascript._ordered(tuple(names))
    return "".join(shortened(javascript._body(name)) for name in ordered if name in javascript._shared())
