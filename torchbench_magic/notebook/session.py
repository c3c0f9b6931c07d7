"""What the extension keeps about one shell while it is loaded, and what the two magics have in common."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from traceback import FrameSummary
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from IPython.core.error import UsageError
from IPython.core.magic import Magics

from torchbench_magic.cell_body import Body
from torchbench_magic.errors import Busy, InputError, Interrupted, MissingTool, OptionError, TorchBenchError
from torchbench_magic.process.code import CompiledBody, Notebook, close_book, compile_body, open_book
from torchbench_magic.process.frame_owner import PROFILED_CELL
from torchbench_magic.process.interrupts import NO_PROGRESS, Progress, interrupts_held
from torchbench_magic.process.output import close_channel, open_channel

from . import config, startup
from .cells import Book, Place, aligned_text
from .display import Output, ShownOnce, bundle_of, register_formatters, withdraw_formatters
from .hosts import held_back, page_of
from .option_parser import read_line
from .options import SharedOptions
from .scope import check_not_local, local_names
from .startup import complete_lines, withdraw_completing

if TYPE_CHECKING:
    from torchbench_magic.result_base import Doubt

T = TypeVar("T", bound=SharedOptions)


class Session:
    """One shell with the extension loaded."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.book = Book(shell)
        self.root = os.getcwd()  # files under it get lines; a later chdir changes nothing
        self._tracebacks = Tracebacks(shell, lambda file: file == PROFILED_CELL or self.book.text_of(file) is not None)
        self._front_end = partial(held_back, shell)
        self.settings = config.declare(shell)

    def open(self) -> None:
        self.book.open()
        open_book(self.book.text_of, lambda: Notebook(self.shell.user_ns, self.compiling, self._plain))
        open_channel(self._front_end)
        self._tracebacks.open()
        startup.install(self.shell)
        complete_lines(self.shell)
        register_formatters(self.shell)
        self.shell.events.register("pre_run_cell", self._note_cell)

    def close(self) -> None:
        if (counting := sys.modules.get("torchbench_magic.counting.client")) is not None:
            counting.close_server()
        self.shell.events.unregister("pre_run_cell", self._note_cell)
        withdraw_formatters(self.shell)
        withdraw_completing(self.shell)
        startup.withdraw_awaiting(self.shell)
        self._tracebacks.close()
        close_channel(self._front_end)
        close_book(self.book.text_of)
        self.book.close()
        config.withdraw_traits(self.shell)

    def _note_cell(self, *_: Any) -> None:
        page_of(self.shell)

    def _plain(self, text: str) -> str:
        return str(self.shell.transform_cell(text))

    @property
    def compiling(self) -> dict[str, Any]:
        """How this shell compiles its cells: ``__future__`` flags and AST transformers."""
        return {"flags": self.shell.compile.flags, "transform_ast": self.shell.transform_ast}

    def as_cell(self, text: str, place: Place, first_line: int) -> Body:
        """``text`` as a cell of this shell would run it: IPython syntax and input transformers included."""
        transformed = aligned_text(text, self.shell.transform_cell(text)) if text.strip() else text
        return Body(transformed, place.file, first_line, place.number)

    def compiled(
        self, body: Body, place: Place, change: Callable[[ast.Module], ast.Module] | None = None
    ) -> CompiledBody:
        """``body`` compiled as this shell would, after ``change`` of its tree.

        A syntax error on the magic line points into that line.
        """
        compiling = self.compiling
        if change is not None:
            compiling["transform_ast"] = lambda tree: change(self.shell.transform_ast(tree))
        try:
            return compile_body(body, **compiling)
        except SyntaxError as error:
            if error.offset is not None and error.lineno == body.first_line == place.magic_line:
                column = place.column_of(body.source)
                error.offset += column
                error.end_offset = None if error.end_offset is None else error.end_offset + column
            raise

    def begun(self, kind: type[T], family: str, line: str, cell: str | None) -> tuple[T, str, dict[str, Any], Place]:
        """(options, rest of the line, names of the calling function, where the code stands) of a magic that measures.

        Raises:
            OptionError: in one line: an option, or a variable that ``-o`` cannot set.
        """
        options, rest = read_line(kind, f"%{family}" if cell is None else f"%%{family}", line, self.settings.defaults())
        local = local_names(self.shell.user_ns)
        check_not_local(options.output, local)
        self.check_target(options.output)
        place = self.book.place_of_line(family, line) if cell is None else self.book.place_of_cell(family, cell)
        return options, rest, local, place

    @contextmanager
    def delivering(self, family: str, options: SharedOptions, **view: Any) -> Iterator[Delivery]:
        """Run a measurement: its result, whole or partial, is kept as ``_family`` and shown.

        Args:
            family: ``timer`` or ``tprofile``.
            view: options of the view, such as ``sort_by``.
        """
        import_libraries()
        delivery = Delivery(self, family, options, view)
        try:
            yield delivery
        except Interrupted as interrupt:
            delivery.deliver(interrupt.partial)
            raise KeyboardInterrupt(*interrupt.args) from None
        except BaseException:
            if not delivery.is_delivered:
                delivery.output.clear()
            raise
        delivery.deliver(delivery.result)

    def check_target(self, name: str | None) -> None:
        """Refuse ``-o NAME`` where the variable holds something else than a result.

        Raises:
            OptionError: in one line, with the way out.
        """
        held = self.shell.user_ns.get(name) if name is not None else None
        if held is None and name not in self.shell.user_ns:
            return
        if type(held).__module__.startswith("torchbench_magic.") and hasattr(type(held), "_mime_"):
            return
        raise OptionError(
            f"-o {name}: {name} holds a {type(held).__name__}, which is not replaced; use another name"
            f" (`-o NAME -- STMT` where {name} begins the statement)"
        )


def import_libraries() -> None:
    """Have what every measurement needs imported as a whole: of C++ modules a second import of what a Ctrl-C broke off
    fails, in the next cell and in every later one.

    Raises:
        MissingTool: torch cannot be imported, and why.
    """
    from torchbench_magic.process.require_torch import import_torch

    with interrupts_held():
        import_torch()
        import pandas  # noqa: F401


class SessionMagics(Magics):
    def __init__(self, session: Session) -> None:
        super().__init__(session.shell)
        self._session = session


@dataclass
class Delivery:
    """The result of one magic on its way to the user.

    Attributes:
        doubts: to be said of it, or of a part of it.
    """

    session: Session
    family: str
    options: SharedOptions
    view: dict[str, Any]
    result: Any = None
    keeps_out: bool = True
    is_delivered: bool = False
    doubts: Sequence[Doubt] = ()
    output: Output = field(init=False)

    def __post_init__(self) -> None:
        self.output = Output(self.session.shell, live=self.session.settings.display not in ("text", "html"))

    @property
    def progress(self) -> Progress:
        return NO_PROGRESS if self.options.quiet else self.output

    def deliver(self, result: Any) -> None:
        """Keep and show ``result``; None (interrupted before anything was measured) shows nothing."""
        shell = self.session.shell
        if result is None:
            self.output.clear()
            return
        with interrupts_held():
            self.is_delivered = True
            if self.doubts:
                result = self.result = replace(result, warnings=[*self.doubts, *result.warnings])
            shell.user_ns[f"_{self.family}"] = result  # `push` as hidden would hold it in another dict, `del` or not
            if self.options.output is not None:
                shell.push({self.options.output: result})
            if self.options.quiet:
                self.output.clear()
                for doubt in result.warnings:
                    if doubt.kind == "not-stored":  # or it would seem to be in the file
                        sys.stderr.write(f"{doubt}\n")
            else:
                self.output.show(*bundle_of(shell, result, explore=self.options.explore, **self.view))
            ShownOnce.mark(shell, result, keeps_out=self.keeps_out and not self.options.quiet)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Tell what was asked wrongly in one line, as IPython tells its own usage errors."""
    try:
        yield
    except (InputError, MissingTool, Busy) as error:
        raise UsageError(str(error)) from None


# ---- tracebacks ------------------------------------------------------------------------------------------------------
# Tracebacks as the user would see them without a magic.
#
# An exception of the measured code passes through the frames of this package on its way up. IPython would show them (or
# a note that it hides some), and after a syntax error the whole way through its own machinery. Both of its formatters
# are wrapped here: our frames are unlinked, and of the cell's own frames the one that stands on the magic line goes too
# where the next one stands in the same cell. Groups of exceptions IPython leaves to Python to print, which asks no
# formatter: so the shell's `showtraceback` is wrapped too.

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_Format = Callable[..., list[str]]
_CALLERS = {"run_cell_magic", "run_line_magic"}


class Tracebacks:
    """Wraps how one shell shows tracebacks until closed."""

    def __init__(self, shell: Any, is_cell: Callable[[str], bool]) -> None:
        self._wrappers: list[tuple[Any, str, Callable[..., Any]]] = [
            (shell.InteractiveTB, "structured_traceback", partial(_formatted, is_cell)),
            (shell.SyntaxTB, "structured_traceback", _formatted_syntax_error),
            (shell, "showtraceback", partial(_shown, is_cell)),
        ]
        self._wrapped: list[tuple[Any, str, Any]] = []

    def open(self) -> None:
        for owner, method, wrapper in self._wrappers:
            ours = partial(wrapper, getattr(owner, method))
            setattr(owner, method, ours)
            self._wrapped.append((owner, method, ours))

    def close(self) -> None:
        for owner, method, ours in self._wrapped:
            if vars(owner).get(method) is ours:
                delattr(owner, method)
        self._wrapped.clear()


def unlink_own_frames(
    error: type[BaseException] | None, tb: TracebackType | None, is_cell: Callable[[str], bool]
) -> TracebackType | None:
    """``tb`` with the frames of this package unlinked.

    Unchanged when there are none, and when the last one did not call a cell's code: then this package is what
    failed, and its frames are needed (an interrupt excepted, which may come at any moment). An error of its own that
    a cell's call of its functions raises says all in its line.
    """
    entries: list[TracebackType] = []
    while tb is not None:
        entries.append(tb)
        tb = tb.tb_next
    own = [index for index, entry in enumerate(entries) if _is_own(entry.tb_frame.f_code.co_filename)]
    interrupted = error is not None and issubclass(error, KeyboardInterrupt)
    inner = entries[own[-1] + 1 :] if own else []
    if own and own[0] and not inner and error is not None and issubclass(error, TorchBenchError):
        if is_cell(_file(entries[own[0] - 1])):
            entries[own[0] - 1].tb_next = None
        return entries[0]
    if not own or not (interrupted or (inner and is_cell(_file(inner[0])))):
        return entries[0] if entries else None
    outer = entries[: own[0]]
    while outer and outer[-1].tb_frame.f_code.co_name in _CALLERS:
        outer.pop()
    if outer and inner and _file(outer[-1]) == _file(inner[0]):
        outer.pop()  # the magic line of the same cell
    kept = outer + inner
    for entry, following in zip(kept, [*kept[1:], None], strict=True):
        entry.tb_next = following
    return kept[0] if kept else None


def _formatted(
    is_cell: Callable[[str], bool],
    original: _Format,
    etype: Any,
    evalue: Any,
    etb: Any,
    *args: Any,
    **kwargs: Any,
) -> list[str]:
    return original(etype, evalue, unlink_own_frames(etype, etb, is_cell), *args, **kwargs)


def _shown(
    is_cell: Callable[[str], bool], original: Callable[..., None], exc_tuple: Any = None, *args: Any, **kwargs: Any
) -> None:
    """The frames are unlinked in place, where Python's own printing finds the traceback too."""
    error, _, tb = exc_tuple or sys.exc_info()
    unlink_own_frames(error, tb, is_cell)
    original(exc_tuple, *args, **kwargs)


def _formatted_syntax_error(
    original: _Format, etype: Any, evalue: Any, entries: Any, *args: Any, **kwargs: Any
) -> list[str]:
    """Syntax errors come with a list of frame summaries; one of our own compiling shows none, as a cell's does."""
    own = [at for at, entry in enumerate(entries) if isinstance(entry, FrameSummary) and _is_own(entry.filename)]
    return original(etype, evalue, entries[own[-1] + 1 :] if own else entries, *args, **kwargs)


def _is_own(file: str) -> bool:
    return file.startswith(_PACKAGE)


def _file(entry: TracebackType) -> str:
    return entry.tb_frame.f_code.co_filename
