"""The C++ of a snippet on its way to the compiler, and the way back from the compiler's lines to the cell's.

What torch's template does with the three texts is kept: ``global_setup`` stands at the level of the file, ``setup`` at
the beginning of a function, ``stmt`` in a loop after it. The pieces are named by ``#line`` for what they are and
numbered from 1, not by the cell they come from: the same code in another cell is the same file, compiled already.

A compiler often notices only behind a piece that something is missing in it. So the first word of ours behind a piece
still bears the number of the piece's last line, under a name of its own (`END`), since its column is not the user's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from torchbench_magic.results.cell_text import Body

__all__ = ["END", "OURS", "Snip", "place_of_line"]

OURS = "torchbench"
"""What lines of the shell around the snippet are called."""

END = ", end"
"""What follows a piece's name where ours goes on."""

_SHELL = """\
{global_setup}
static
#line 1 "{ours}"
torchbench::Status torchbench_run(
    torchbench::Serve server, void* context, torchbench::Message message) noexcept {{
  try {{
{setup}
    auto
#line 1 "{ours}"
    torchbench_loop = [&](std::int64_t torchbench_calls) -> torchbench::Calls {{
      std::int64_t torchbench_made = 0;
      for (; torchbench_made < torchbench_calls; ++torchbench_made) {{
{stmt}
      }}
#line 1 "{ours}"
      return {{torchbench_made}};
    }};
    torchbench::serve(torchbench_loop, server, context);
  }} catch (...) {{
    return torchbench::raised(message);
  }}
  return torchbench::Status::Ok;
}}
"""


@dataclass(frozen=True)
class Snip:
    """The C++ of one snippet, as it was written.

    Attributes:
        stmt: what is timed.
        setup: pieces that run before, in its scope; declared variables are the statement's.
        global_setup: pieces at the level of the file: includes, functions.
    """

    stmt: Body
    setup: Sequence[Body] = ()
    global_setup: Sequence[Body] = ()

    @classmethod
    def of(cls, stmt: str, setup: str = "", global_setup: str = "") -> Snip:
        """From plain texts, whose lines are told as ``stmt, line 1``."""
        named = {"setup": setup, "global_setup": global_setup}
        pieces = ([Body(text, name)] if text.strip() else [] for name, text in named.items())
        return cls(Body(stmt, "stmt"), *pieces)

    @cached_property
    def parts(self) -> Mapping[str, Body]:
        """Name that the compiler knows it by -> piece."""
        named = {"stmt": self.stmt}
        for kind, pieces in (("setup", self.setup), ("global setup", self.global_setup)):
            for number, piece in enumerate(pieces, 1):
                named[kind if number == 1 else f"{kind} {number}"] = piece
        return named

    @cached_property
    def text(self) -> str:
        """The file that is compiled, after the headers."""
        pieces: dict[str, list[str]] = {"stmt": [], "setup": [], "global setup": []}
        for name, body in self.parts.items():
            kind = next(k for k in ("global setup", "setup", "stmt") if name.startswith(k))
            last = len(body.source.rstrip().splitlines()) or 1
            pieces[kind].append(f'#line 1 "{name}"\n{body.source}\n#line {last} "{name}{END}"')
        joined = {kind.replace(" ", "_"): "\n".join(texts) for kind, texts in pieces.items()}
        return _SHELL.format(ours=OURS, **joined)

    @property
    def setup_text(self) -> str:
        return _joined(self.setup)

    @property
    def global_setup_text(self) -> str:
        return _joined(self.global_setup)


def place_of_line(body: Body, line: int) -> str:
    """``In[3], line 5``: where the user sees line ``line`` (from 1) of a piece."""
    where = f"In[{body.cell}]" if body.cell is not None else body.file
    return f"{where}, line {body.first_line + line - 1}"


def _joined(parts: Sequence[Body]) -> str:
    return "\n".join(part.source.strip("\n") for part in parts)
