"""What the extension keeps about one shell while it is loaded, and what the two magics have in common."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from IPython.core.error import UsageError
from IPython.core.magic import Magics

from torchbench_magic.cell_text import Body
from torchbench_magic.errors import Busy, InputError, Interrupted, MissingTool, OptionError
from torchbench_magic.process.code import CompiledBody, Notebook, close_book, compile_body, open_book
from torchbench_magic.process.frame_owner import PROFILED_CELL
from torchbench_magic.process.interrupts import interrupts_held
from torchbench_magic.process.memory import give_back_if_due
from torchbench_magic.process.output import close_channel, open_channel
from torchbench_magic.profiling.file_texts import FileTexts, RecordedFiles

from . import config, startup
from .cells import Book, Place, aligned_text
from .display import Output, ShownOnce, bundle_of, register_formatters, withdraw_formatters
from .hosts import held_back, page_of
from .option_parser import read_line
from .options import SharedOptions
from .scope import check_not_local, local_names
from .startup import complete_lines, withdraw_completing
from .tracebacks import Tracebacks

if TYPE_CHECKING:
    from torchbench_magic.process.interrupts import Progress
    from torchbench_magic.results import Doubt

T = TypeVar("T", bound=SharedOptions)


class Session:
    """One shell with the extension loaded."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.book = Book(shell)
        self.root = os.getcwd()  # files under it get lines; a later chdir changes nothing
        self._files = FileTexts(RecordedFiles(self.root, lambda file: None))
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
        self._files.look()
        for event in ("pre_run_cell", "post_run_cell"):  # a cell imports modules; between cells they are edited
            self.shell.events.register(event, self._look_at_files)
        self.shell.events.register("pre_run_cell", self._note_cell)
        self.shell.events.register("post_run_cell", _give_back)

    def close(self) -> None:
        if (counting := sys.modules.get("torchbench_magic.counting.client")) is not None:
            counting.close_server()
        for event in ("pre_run_cell", "post_run_cell"):
            self.shell.events.unregister(event, self._look_at_files)
        self.shell.events.unregister("pre_run_cell", self._note_cell)
        self.shell.events.unregister("post_run_cell", _give_back)
        withdraw_formatters(self.shell)
        withdraw_completing(self.shell)
        startup.withdraw_awaiting(self.shell)
        self._tracebacks.close()
        close_channel(self._front_end)
        close_book(self.book.text_of)
        self.book.close()
        config.withdraw_traits(self.shell)

    def _look_at_files(self, *_: Any) -> None:
        self._files.look()

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
            known = "torchbench_magic.counting.client"  # imported whole: another thread may be at it
            with import_module(known).starting_held() if known in sys.modules else nullcontext():
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


def _give_back(*_: Any) -> None:
    """A cell may have released a large profile (``del``, ``%reset``, a new value for its name), or drawn it."""
    give_back_if_due()


def import_libraries() -> None:
    """Have what every measurement needs imported as a whole: of C++ modules a second import of what a Ctrl-C broke off
    fails, in the next cell and in every later one.

    Raises:
        MissingTool: torch cannot be imported, and why.
    """
    from torchbench_magic.process.torch_import import import_torch

    with interrupts_held():
        import_torch()
        import pandas  # noqa: F401


class SessionMagics(Magics):
    """Magics of a session."""

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
        from torchbench_magic.process.interrupts import NO_PROGRESS

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
