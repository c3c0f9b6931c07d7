"""Compile C++ snippets: the toolchain, the source, what the compiler says, and where results are kept."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

from torchbench_magic.cell_body import Body
from torchbench_magic.errors import MissingTool, SnippetError
from torchbench_magic.process.interrupts import NO_PROGRESS, Progress, hear_interrupt, interrupts_held
from torchbench_magic.process.machine import user_cache_folder

# ---- toolchain -------------------------------------------------------------------------------------------------------
# The compiler, the headers and the flags: those that torch's own C++ timer uses, and what identifies them.

Headers = Literal["lean", "full"]

_INCLUDED: dict[Headers, tuple[str, ...]] = {
    # tensors, factories, the functional namespaces: what snippets use, in half the time
    "lean": ("c10/util/irange.h", "torch/types.h", "torch/fft.h", "torch/special.h"),
    # what torch's templates include: modules, optimizers, data, serialization, Python
    "full": ("c10/util/irange.h", "torch/csrc/utils/pybind.h", "pybind11/pybind11.h", "torch/extension.h"),
}
_LIBRARIES: dict[Headers, tuple[str, ...]] = {
    "lean": ("c10", "torch_cpu", "torch"),
    "full": ("c10", "torch_cpu", "torch", "torch_python"),
}
_MORE = ("torch/csrc/api/include", "torch/csrc/autograd", "torch/csrc/utils", "pybind11")
_FOLDERS = ("include", "include/torch/csrc/api/include", "utils/benchmark/utils/valgrind_wrapper")  # has callgrind.h
_RUNTIME = Path(__file__).parent / "runtime.h"


@dataclass(frozen=True)
class Toolchain:
    """A compiler that makes libraries for this torch.

    Attributes:
        command: the compiler's, as a list.
        version: what it says of itself.
        flags: for compiling, torch's own ones included.
        link_flags: for linking, without the libraries.
        identity: of all that decides what comes out of a source: compiler, flags, torch's build and place.
    """

    command: tuple[str, ...]
    version: str
    flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    identity: str

    @property
    def precompiles(self) -> bool:
        """Precompiled headers are found beside the header by their name: GCC's way."""
        return "Free Software Foundation" in self.version

    def prelude(self, headers: Headers) -> str:
        """What stands before each snippet."""
        included = "".join(f"#include <{name}>\n" for name in _INCLUDED[headers])
        return f"{included}\n{_RUNTIME.read_text(encoding='utf-8')}"

    def libraries(self, headers: Headers) -> list[str]:
        return [f"-l{name}" for name in _LIBRARIES[headers]]

    def key(self, headers: Headers, text: str = "") -> str:
        """Identifies what is compiled from ``text``: 32 hex digits."""
        parts = "\0".join((self.identity, headers, self.prelude(headers), text))
        return hashlib.sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def find_toolchain() -> Toolchain:
    """The compiler that ``CXX`` names, or g++ or c++, with the flags for this torch.

    Raises:
        MissingTool: there is none; in one line, with the command that installs it.
    """
    asked = os.environ.get("CXX", "")
    try:
        candidates = [shlex.split(asked)] if asked.strip() else [["g++"], ["c++"]]
    except ValueError:  # a quotation that does not end
        candidates = []
    for candidate in candidates:
        found = shutil.which(candidate[0])
        if found is not None:
            return _toolchain((found, *candidate[1:]), os.path.getmtime(found))
    if asked.strip():
        raise MissingTool(f"C++ snippets need a compiler, and CXX={asked} names none: unset CXX, or install it")
    raise MissingTool(
        "C++ snippets need a compiler, and g++ is not installed: `sudo apt-get install g++`, or"
        " `conda install -c conda-forge gxx`"
    )


def knows_more(names: set[str]) -> bool:
    """Whether one of these names occurs in the headers that only the full set includes."""
    import torch

    if not names:
        return False
    include = Path(torch.__file__).parent / "include"
    word = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(names)))})\b")
    files = (path for folder in _MORE for path in (include / folder).rglob("*.h"))
    return any(word.search(path.read_text(encoding="utf-8", errors="replace")) for path in files)


@cache
def _toolchain(command: tuple[str, ...], changed: float) -> Toolchain:
    """``changed``: when the compiler was installed, so that another one under its name is asked anew."""
    import torch

    try:
        said = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingTool(f"the C++ compiler {command[0]} does not run ({error}): set CXX to one that does") from None
    home = Path(torch.__file__).parent
    flags = (
        *_torch_flags(torch),
        "-std=c++20",
        "-fPIC",
        "-g1",  # lines and files of functions, for the counts; the whole of -g doubles the time
        "-w",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *(f"-isystem{home / folder}" for folder in _FOLDERS),
        *(f"-isystem{folder}" for folder in _python_folders()),
    )
    link_flags = ("-shared", f"-L{home / 'lib'}", f"-Wl,-rpath,{home / 'lib'}")
    built = (home / "lib").glob("libtorch_cpu.*")
    facts = [
        said.stdout,
        *command,
        *flags,
        *link_flags,
        torch.__version__,
        str(torch.version.git_version),
        platform.machine(),
        *(f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in sorted(built)),
        f"{changed}",
    ]
    return Toolchain(command, said.stdout, flags, link_flags, "\0".join(facts))


def _torch_flags(torch: Any) -> list[str]:
    """What torch was compiled with, but for warnings and debugging, as torch's C++ timer takes them.

    Raises:
        MissingTool: this torch does not tell; other flags would be another program.
    """
    asked: Callable[[], str] | None = getattr(torch._C, "_cxx_flags", None)
    if asked is None:
        raise MissingTool("C++ snippets: this torch does not say how it was compiled (torch._C._cxx_flags)")
    given = asked()
    return [flag for flag in given.split() if not flag.startswith(("-W", "-g"))]


def _python_folders() -> list[str]:
    import sysconfig

    conda = os.environ.get("CONDA_PREFIX")
    return [sysconfig.get_path("include"), *([os.path.join(conda, "include")] if conda else [])]


# ---- source ----------------------------------------------------------------------------------------------------------
# The C++ of a snippet on its way to the compiler, and the way back from the compiler's lines to the cell's.
#
# What torch's template does with the three texts is kept: ``global_setup`` stands at the level of the file, ``setup``
# at the beginning of a function, ``stmt`` in a loop after it. The pieces are named by ``#line`` for what they are and
# numbered from 1, not by the cell they come from: the same code in another cell is the same file, compiled already.
#
# A compiler often notices only behind a piece that something is missing in it. So the first word of ours behind a piece
# still bears the number of the piece's last line, under a name of its own (`END`), since its column is not the user's.

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


# ---- diagnostics -----------------------------------------------------------------------------------------------------
# What a compiler says about a snippet, as far as it is the user's: on the cell's lines, the rest counted.

_SHOWN = 3
_AT = re.compile(r"^(?P<file>[^:\n]+):(?P<line>\d+):(?:(?P<column>\d+):)?\s*(?P<rest>.*)$")
_ERROR = re.compile(r"^(?:fatal )?error: (?P<text>.*)$")
# what another header might declare
_MISSING = re.compile(
    r"not a member of|was not declared|has not been declared|does not name a|is not a (?:class|namespace)"
    r"|incomplete type|no member named|undeclared identifier|unknown type name|no template named|is not a template"
    r"|no type named"
)


@dataclass(frozen=True)
class Fault:
    """One error of the compiler.

    Attributes:
        part: the piece of the snippet it stands in (see `Snip.parts`); None where it is in nobody's code.
        line: in that piece, from 1.
        column: from 1; 0 where it is not known.
        text: the compiler's words.
    """

    part: str | None
    line: int
    column: int
    text: str


def faults_of(said: str, snip: Snip) -> list[Fault]:
    """The errors in a compiler's output. One in a header is laid to the line of the snippet that led there."""
    found: list[Fault] = []
    led: tuple[str, int, int] | None = None
    for line in said.splitlines():
        match = _AT.match(line.removeprefix("In file included from ").rstrip(",:"))
        if match is None:
            continue
        behind = match["file"].endswith(END)
        place = (match["file"].removesuffix(END), int(match["line"]), 0 if behind else int(match["column"] or 0))
        error = _ERROR.match(match["rest"])
        if error is None:
            if place[0] in snip.parts and ("required" in match["rest"] or line.startswith("In file included")):
                led = place
            elif place[0] in snip.parts and found and found[-1].part is None and "requested here" in match["rest"]:
                found[-1] = Fault(*place, found[-1].text)  # clang tells the way after the error
            continue
        part, at, column = place if place[0] in snip.parts else led or (None, 0, 0)
        found.append(Fault(part, at, column, error["text"]))
        led = None
    return found


def unknown_names(faults: list[Fault]) -> set[str]:
    """The names that were not known, which another header might declare."""
    found = set()
    for fault in faults:
        quoted = re.search(r"named '([^']+)'", fault.text) or re.search(r"'([^']+)'", fault.text)
        if quoted and _MISSING.search(fault.text):
            found |= set(re.findall(r"\w+", quoted[1])[-1:])
    return found


def told(name: str, snip: Snip, said: str) -> str:
    """The message to show: the user's own errors with their lines, at most three, and how many more there are."""
    faults = faults_of(said, snip)
    own = list(dict.fromkeys(fault for fault in faults if fault.part is not None))
    head = f"{name} does not compile"
    if not own:
        first = faults[0].text if faults else (said.strip().splitlines() or ["the compiler said nothing"])[-1]
        hint = "; is a brace, bracket or quote unclosed?" if faults else ""
        return f"{head}: {first}{hint}"
    lines = [f"{head}:", *(line for fault in own[:_SHOWN] for line in _shown(fault, snip))]
    if len(faults) > len(own[:_SHOWN]):
        more = len(faults) - len(own[:_SHOWN])
        lines.append(f"  and {more} more error{'' if more == 1 else 's'}")
    return "\n".join(lines)


def _shown(fault: Fault, snip: Snip) -> Iterator[str]:
    assert fault.part is not None
    body = snip.parts[fault.part]
    yield f"  {place_of_line(body, fault.line)}: {fault.text}"
    written = body.source.splitlines()
    if 0 < fault.line <= len(written):
        text = written[fault.line - 1]
        yield f"    {text.strip()}"
        indent = len(text) - len(text.lstrip())
        if fault.column > indent:
            yield f"    {' ' * (fault.column - 1 - indent)}^"


# ---- cache -----------------------------------------------------------------------------------------------------------
# Where compiled snippets are kept: a folder of the user's, by the hash of all that decides what comes out.
#
# Every file is written under another name and then renamed, so that kernels that compile the same thing at once do not
# meet. What is kept is loaded into the kernel: so the folder must belong to this user and be writable by nobody else.

_KEPT_DAYS = 30
_MOST_BYTES = 2 << 30  # precompiled headers are 460 MB for each compiler and torch
_IN_USE = 3600.0  # seconds since a kernel took it
_RETURNED = ".returned"
"""Ending of the file beside a library that says that it was seen to return."""


@dataclass(frozen=True)
class Cache:
    """One folder of compiled things.

    Attributes:
        folder: it; made when the first thing is compiled.
    """

    folder: Path

    def used(self, path: Path) -> bool:
        """Whether it is there; then it counts as used now."""
        with contextlib.suppress(OSError):  # a file system without writing: it may be read nevertheless
            os.utime(path)
        return path.exists()

    @contextlib.contextmanager
    def making(self, path: Path) -> Iterator[Path]:
        """A private folder to make ``path`` in, then to be renamed. It is gone afterwards.

        Raises:
            OSError: the folder cannot be written.
        """
        for folder in (self.folder.parent, self.folder, path.parent):  # each with the mode; `parents` has the umask's
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        workshop = Path(tempfile.mkdtemp(prefix=f"{path.stem}-", suffix=".tmp", dir=path.parent))
        try:
            yield workshop
        finally:
            shutil.rmtree(workshop, ignore_errors=True)

    def prune(self, days: float = _KEPT_DAYS, most: int = _MOST_BYTES) -> None:
        """Remove what was not used for so long, and beyond so many bytes what was not used for longest."""
        now, size = time.time(), 0
        known = [(path.stat(), path) for path in self.folder.glob("*/*") if path.suffix != _RETURNED]
        for about, path in sorted(known, key=lambda one: -one[0].st_mtime):
            size += about.st_size
            idle = now - about.st_mtime
            if idle > days * 86400 or (size > most and idle > _IN_USE):
                if path.is_dir():  # of a kernel that was killed
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
                    path.with_name(path.name + _RETURNED).unlink(missing_ok=True)


def why_not_ours(path: Path) -> str:
    """Why what stands at ``path`` may not be this user's own; empty where it is."""
    try:
        about = path.lstat()
    except FileNotFoundError:  # it is made when something is compiled
        return ""
    if stat.S_ISLNK(about.st_mode):
        return f"{path} is a link"
    if hasattr(os, "geteuid") and about.st_uid != os.geteuid():
        return f"{path} belongs to another user"
    if hasattr(os, "geteuid") and about.st_mode & 0o022:
        return f"{path} can be written by other users"
    return ""


def the_cache() -> Cache:
    """The user's cache; ``XDG_CACHE_HOME`` names another place for it.

    Raises:
        SnippetError: it cannot be written, or others can write it.
    """
    try:
        folder = user_cache_folder() / "torchbench_magic" / "cpp"
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # whatever the umask
        folder.mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        why = why_not_ours(folder.parent) or why_not_ours(folder)
    except RuntimeError:  # neither HOME nor an entry of the user
        why = "this user has no home folder"
    except OSError as error:
        why = f"{folder} cannot be written ({error.strerror})"
    if why:
        way = "set XDG_CACHE_HOME to a folder that you, and nobody else, can write to"
        raise SnippetError(f"compiled C++ snippets cannot be kept: {why}; {way}")
    return Cache(folder)


# ---- build -----------------------------------------------------------------------------------------------------------
# Compile snippets: what is not in the cache, side by side, no more at once than there are cores.
#
# Nearly all of the time goes to torch's headers. So only those are read that snippets use; one that has a name which
# they do not declare is compiled anew with all that torch's templates include. And after a few snippets the headers are
# precompiled (with GCC): that takes as long as two snippets and 460 MB, and a snippet a third of the time from then on.

_TICK = 0.05
_OFTEN = 4
"""Snippets in the cache from which on headers are precompiled."""


def build(snips: Mapping[str, Snip], *, progress: Progress = NO_PROGRESS) -> dict[str, Path]:
    """Compile each snippet that is not compiled yet; the libraries. Ctrl-C ends the compilers.

    It is heard while they run, not while they are started or what they made is put in place.

    Raises:
        MissingTool: no compiler.
        SnippetError: what does not compile, with the lines of the cell; no folder to keep it in.
    """
    with interrupts_held():
        return _Builds(find_toolchain(), the_cache(), progress).build(snips)


@dataclass
class _Compile:
    """One run of the compiler."""

    number: int
    names: list[str]
    snip: Snip
    headers: Headers
    target: Path
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    process: subprocess.Popen[bytes] | None = None
    workshop: Path = Path()


class _Builds:
    def __init__(self, toolchain: Toolchain, cache: Cache, progress: Progress) -> None:
        self._toolchain, self._cache, self._progress = toolchain, cache, progress
        self._began = time.monotonic()

    def build(self, snips: Mapping[str, Snip]) -> dict[str, Path]:
        found: dict[str, Path] = {}
        waiting: list[_Compile] = []
        for name, snip in snips.items():
            targets: dict[Headers, Path] = {h: self._target(snip, h) for h in ("lean", "full")}
            known = next((path for path in targets.values() if self._cache.used(path)), None)
            if known is not None:
                found[name] = known
                continue
            same = next((one for one in waiting if one.target == targets["lean"]), None)
            if same is not None:
                same.names.append(name)
            else:
                waiting.append(_Compile(len(waiting), [name], snip, "lean", targets["lean"]))
        if waiting:
            self._prepare_headers()
            found |= self._compile(waiting)
            with contextlib.suppress(OSError):  # of a kernel that does the same
                self._cache.prune()
        # in the order of the snippets, not in that of the compilers' ends
        return {name: found[name] for name in snips}

    def _target(self, snip: Snip, headers: Headers) -> Path:
        """One folder for all snippets of one compiler, its flags and this torch."""
        return self._cache.folder / self._toolchain.key("lean") / f"{self._toolchain.key(headers, snip.text)}.so"

    # ---- the headers --------------------------------------------------------------------------------------------

    def _prelude(self) -> Path:
        return self._cache.folder / self._toolchain.key("lean") / "prelude.h"

    def _prepare_headers(self) -> None:
        """Precompile the lean headers where snippets are compiled often."""
        prelude = self._prelude()
        precompiled = prelude.with_name("prelude.h.gch")
        if not self._toolchain.precompiles or self._cache.used(precompiled):
            return
        if len(list(prelude.parent.glob("*.so"))) < _OFTEN:
            return
        with self._room(), self._cache.making(precompiled) as workshop:
            prelude.write_text(self._toolchain.prelude("lean"), encoding="utf-8")
            command = ["-x", "c++-header", str(prelude), "-o", str(workshop / precompiled.name)]
            with self._running(command, workshop) as process:
                while process.poll() is None:
                    self._tell("compiling torch's headers, once")
                    time.sleep(_TICK)
            if process.returncode == 0:
                os.replace(workshop / precompiled.name, precompiled)

    @contextlib.contextmanager
    def _room(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why = error.strerror or error
            raise SnippetError(f"snippets cannot be compiled ({why}): free space in {self._cache.folder}") from None

    # ---- the snippets -------------------------------------------------------------------------------------------

    def _compile(self, waiting: list[_Compile]) -> dict[str, Path]:
        found: dict[str, Path] = {}
        failed: dict[int, str] = {}
        running: list[_Compile] = []
        count, cores = len(waiting), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        try:
            while waiting or running:
                while waiting and len(running) < cores:
                    running.append(waiting.pop(0))  # before it starts: what fails leaves no folder
                    self._start(running[-1])
                self._tell(f"compiling {count} snippet{'' if count == 1 else 's'}")
                time.sleep(_TICK)
                for one in [r for r in running if r.process is not None and r.process.poll() is not None]:
                    running.remove(one)
                    said = self._finish(one)
                    if one.process is not None and one.process.returncode == 0:
                        found |= dict.fromkeys(one.names, one.target)
                    elif one.headers == "lean" and knows_more(unknown_names(faults_of(said, one.snip))):
                        target = self._target(one.snip, "full")
                        waiting.append(_Compile(one.number, one.names, one.snip, "full", target))
                    else:
                        failed[one.number] = told(", ".join(one.names), one.snip, said)
        finally:
            for one in running:
                one.stack.close()
        if failed:
            raise SnippetError("\n".join(text for _, text in sorted(failed.items())))
        return found

    def _start(self, one: _Compile) -> None:
        with self._room():
            workshop = one.workshop = one.stack.enter_context(self._cache.making(one.target))
            source = workshop / "snippet.cpp"
            precompiled = one.headers == "lean" and self._prelude().exists()
            head = f'#include "{self._prelude()}"' if precompiled else self._toolchain.prelude(one.headers)
            source.write_text(f"{head}\n{one.snip.text}", encoding="utf-8")
            command = [str(source), "-o", str(workshop / one.target.name), *self._toolchain.link_flags]
            command += self._toolchain.libraries(one.headers)
            one.process = one.stack.enter_context(self._running(command, workshop))

    def _finish(self, one: _Compile) -> str:
        """Put what was made in place; what the compiler said."""
        with one.stack, self._room():
            said = (one.workshop / "said").read_text(errors="replace")
            if one.process is not None and one.process.returncode == 0:
                os.replace(one.workshop / one.target.name, one.target)
        return said

    # ---- a compiler ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _running(self, arguments: Sequence[str], workshop: Path) -> Iterator[subprocess.Popen[bytes]]:
        """A compiler with torch's flags, its words in ``said``; killed, with what it started, if it still runs."""
        words = {**os.environ, "LC_ALL": "C", "TMPDIR": str(workshop)}
        quiet = ["-fdiagnostics-color=never", "-fno-diagnostics-show-caret"]
        with open(workshop / "said", "wb") as said:
            process = subprocess.Popen(
                [*self._toolchain.command, *self._toolchain.flags, *quiet, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=words,
                cwd=workshop,
                start_new_session=True,  # Ctrl-C is the notebook's
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _tell(self, what: str) -> None:
        hear_interrupt()
        self._progress.update(time.monotonic() - self._began, None, what)
