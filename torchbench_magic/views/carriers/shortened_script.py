"""JavaScript of ours without what only people read: comments, indentation, spaces between signs. Names stay.

For the modules of ``static/``, in whose style a comment after code has a space before and after ``//``, and every
statement ends with ``;`` or ``}``. What is text (strings, templates, patterns) is left alone, but for the indentation
and the comments of style sheets.
"""

from __future__ import annotations

import re

__all__ = ["shortened"]

_COMMENT = re.compile(r"(^|\s+)//(\s.*)?$")
_SPACE = re.compile(r"\s+")
_PATTERN = re.compile(r"/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/[a-z]*")
_BEFORE_PATTERNS = "=(,:!&|?[;{"  # elsewhere a slash divides
_EXPRESSION = re.compile(r"(?:\\.|\$(?!\{)|[^\\$])*\$\{", re.DOTALL)  # of a template, with what stands before it
_TOKEN = re.compile(r"""\"(?:\\.|[^"\\])*\"|'(?:\\.|[^'\\])*'|[\w$]+|.""", re.DOTALL)


def shortened(text: str) -> str:
    """The same script, shorter.

    Raises:
        ValueError: what looks like a comment may be a part of a text.
    """
    return _squeezed(_without_comments(text))


def _without_comments(text: str) -> str:
    kept = []
    for line in re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL).splitlines():
        code = _COMMENT.sub("", line)
        if code != line and any(code.count(quote) % 2 for quote in "\"'`"):
            raise ValueError(f"this may be no comment but text: {line.strip()}")
        if code.strip():
            kept.append(code.strip())
    return "\n".join(kept) + "\n"


def _squeezed(text: str) -> str:
    """Without spaces that part no words; a line that may end a statement stays one."""
    done, at = [";"], 0
    while at < len(text):
        last = done[-1][-1]
        if (space := _SPACE.match(text, at)) is not None:
            at = space.end()
            done.append(_least_space(last, text[at : at + 1], "\n" in space[0]))
            if not done[-1]:
                done.pop()
            continue
        end = _end_of_template(text, at) if text[at] == "`" else _end_of_token(text, at, last)
        if text[at] == "`":
            done.append(_template(text[at:end]))
        elif text[at] == "}" and last == ";":
            done[-1] = "}"
        else:
            done.append("let" if text[at:end] == "const" else text[at:end])  # the same to who does not assign
        at = end
    return "".join(done[1:]) + "\n"


def _least_space(last: str, following: str, is_line: bool) -> str:
    """What must stay of a space between two signs."""
    if is_line and last not in "{}([,;" and following not in ("", ")", "}", "]"):
        return "\n"
    return " " if (_is_word(last) and _is_word(following)) or (last == following and last in "+-") else ""


def _end_of_token(text: str, at: int, last: str) -> int:
    found = _PATTERN.match(text, at) if text[at] == "/" and last and last in _BEFORE_PATTERNS else None
    found = found or _TOKEN.match(text, at)
    assert found is not None  # it matches any sign
    return found.end()


def _is_word(sign: str) -> bool:
    return sign.isalnum() or sign in ("_", "$")


def _template(text: str) -> str:
    """A template with its expressions squeezed."""
    made, at = [], 0
    while (begun := _EXPRESSION.match(text, at)) is not None:
        end = _end_of_expression(text, begun.end())
        made += [begun[0], _squeezed(text[begun.end() : end - 1]).strip(), "}"]
        at = end
    return "".join(made) + text[at:]


def _end_of_template(text: str, at: int) -> int:
    """The place after the template that begins at ``at``; expressions in it may hold templates."""
    at += 1
    while text[at] != "`":
        if text.startswith("${", at):
            at = _end_of_expression(text, at + 2)
        else:
            at += 2 if text[at] == "\\" else 1
    return at + 1


def _end_of_expression(text: str, at: int) -> int:
    depth = 1
    while depth:
        if text[at] == "`":
            at = _end_of_template(text, at)
            continue
        if text[at] in "\"'":
            at = _end_of_token(text, at, "")
            continue
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return at
