"""The exceptions of torchbench_magic. Each message is one line that says what to do.

::

    TorchBenchError
    ├── InputError (ValueError)   what was asked cannot be used as it stands
    │   ├── OptionError           an option, or its value
    │   ├── SectionError          the ``# --- NAME`` sections of a cell
    │   ├── BodyError             code that cannot be measured in the form it has
    │   ├── SnippetError          C++ that does not compile, throws or crashes
    │   ├── CheckFailed           alternatives that do not return the same
    │   ├── StoreError            a file of results that cannot be read or written
    │   └── TraceError            a trace that cannot be read or written
    ├── CountError                instructions could not be counted, and why
    ├── MissingTool               a program or package that is not installed, with the command that installs it
    └── Busy                      something else holds what is needed (a running profiler, a trace hook)

    KeyboardInterrupt
    └── Interrupted               Ctrl-C during a measurement; ``.partial`` is what was measured until then

An exception raised by the measured code is the user's own and is never wrapped in one of these.
"""

from __future__ import annotations

from torchbench_magic.printable import printable, printable_lines


class TorchBenchError(Exception):
    """Base of every error that this package raises on its own account.

    The text is one line in which names and paths of others cannot steer a terminal.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class InputError(TorchBenchError, ValueError):
    """What was asked cannot be used as it stands."""


class OptionError(InputError):
    """An unknown option, or a value that the option does not take."""


class SectionError(InputError):
    """The sections of a ``%%timer`` cell do not make a set of alternatives."""


class BodyError(InputError):
    """The code cannot be measured in the form it has."""


class SnippetError(InputError):
    """A C++ snippet that does not compile (then with the lines of the cell, one below the other), throws or crashes."""

    def __str__(self) -> str:
        return printable_lines(ValueError.__str__(self))


class CheckFailed(InputError):
    """Alternatives that should mean the same return different values."""


class StoreError(InputError):
    """A file of results cannot be read or written as it stands: missing, locked, full, damaged, not one of ours."""


class TraceError(InputError):
    """A trace cannot be read or written as it stands: missing, cut off, of another tool, a full disk."""


class CountError(TorchBenchError):
    """Instructions could not be counted; the message says why, and the way out."""


class MissingTool(TorchBenchError):
    """A program or package is missing; the message names the command that installs it."""


class Busy(TorchBenchError):
    """Something that only one can hold at a time is held by somebody else."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a measurement.

    Attributes:
        partial: the result measured until then (a ``Comparison`` or a ``Profile``), or None.
        said: without one, what had run until then, in one line; it is the text of the exception. With one, that
            says where it is.
    """

    def __init__(self, partial: object | None = None, said: str = "") -> None:
        super().__init__(*([printable(said)] if said else []))
        self.partial, self.said = partial, said

    def __str__(self) -> str:
        if self.said or self.partial is None:
            return super().__str__()
        return "what was measured until then is in its `.partial` (in a notebook: `sys.last_value.partial`)"
