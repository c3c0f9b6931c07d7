"""The process under valgrind: it imports torch once and then forks a child for each job.

``valgrind --tool=callgrind --instr-atstart=no ... python -P -S -c "...main()"``: descriptor 0 is a socket to the keeper
and the kernels (control), 1 one that brings a connection for each job, 2 a file in the private directory for what is
said.

The server never reads a job. It only reads a byte and forks, so that its heap is the same at every fork and two
counts of the same code are the same number; with a loop that read jobs, later counts drifted. The child takes the job
from its connection, counts, answers and kills itself. When control is closed, the keeper and all kernels are gone:
the server removes the directory and ends, and its children end with it.

What takes long to import and is used by little code (`ON_DEMAND`) is not imported here, nor by a child, which would
take a minute for each job. A child that needs it says so, and the notebook counts with a second server that has it.

Addresses decide how many instructions an allocation or a look-up takes. So that two servers have the same ones, all
that is told to a server while it starts is the same text in every notebook of one environment: no name of a
directory, no number of a descriptor, and of the module path only what torch needs. Python lists a folder of the path
when it looks for a module there, and keeps the names: so what ``.pth`` files add, such as the folder of a project that
is installed with ``pip install -e``, in which files come and go, is not on the path until all is imported (``-S``).
What a job brings differs from notebook to notebook; `level_heap.level` takes that out again, before its variables are
made and before its code is counted.
"""

from __future__ import annotations

import builtins
import gc
import importlib
import itertools
import json
import marshal
import os
import pickle
import shutil
import signal
import socket
import struct
import sys
from types import FunctionType
from typing import Any

ON_DEMAND = frozenset({"torch._dynamo"})
"""Optimizers import it with their first step or `zero_grad`: see ``torch._compile._disable_dynamo``."""

_WARM_CALLS = 10
_WARM_PASSES = 3
_SNIPPET_OK = 1


def main() -> None:
    """Serve until control is closed."""
    gc.disable()  # imports leave little garbage, and looking for it again and again is part of what they take
    notebook, jobs = (socket.socket(fileno=os.dup(descriptor)) for descriptor in (0, 1))
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    (size,) = struct.unpack("<Q", _exactly(notebook, 8))
    sys.path += [entry for entry in json.loads(_exactly(notebook, size)) if entry not in sys.path]
    control = notebook.fileno()

    from . import client_requests, level_heap

    level_heap.place_arenas()
    # Modules of this package are compiled anew, so that it does not matter which of them Python has compiled before.
    never, sys.pycache_prefix = sys.pycache_prefix, None
    import cloudpickle  # noqa: F401  (the jobs unpickle with it)
    import torch

    sys.pycache_prefix = never
    from torchbench_magic.process import send  # noqa: F401  (the jobs are unpacked with it)

    sys.pycache_prefix = None
    preloaded = sys.argv[3:]
    for name in preloaded:
        importlib.import_module(name)
    import site

    site.main()
    _demand.absent = ON_DEMAND - set(preloaded)
    sys.meta_path.insert(0, _demand)

    if not client_requests.under_valgrind():
        raise SystemExit("not under valgrind")
    torch.set_num_threads(1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are reaped by the system
    read, fork, exit_ = os.read, os.fork, os._exit
    # Collecting is switched thread by thread. Those that the code starts collect from the first instruction on, and
    # what they do before the statement goes into the part of the warm-up; this one only between two toggles.
    start = client_requests.builtin((client_requests.START,), (client_requests.TOGGLE,))
    gc.collect()
    for _ in range(3):  # the loop itself must leave the heap as it found it
        if fork() == 0:
            exit_(0)
    level_heap.settle()
    gc.freeze()
    start()
    _rehearse()
    level_heap.level()
    gc.freeze()
    try:
        os.write(control, b"R")
        while read(control, 1):
            if fork() == 0:
                break
        else:
            _leave()
    except OSError:  # the notebook went while something was on its way
        _leave()
    try:
        client_requests.end_with_parent()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        notebook.close()
        os.register_at_fork(after_in_child=_end)  # code that forks must not answer twice
        _answer(_connection(jobs))
    finally:
        _end()


class _Needed(BaseException):
    """A module that this server has not, and is not to import."""


class _Demand:
    """Stands before the finders, and notes which module on demand the code imports.

    Attributes:
        absent: modules on demand that this server has not.
        asked: the one that the code has asked for, also where it catches every exception.
    """

    def __init__(self) -> None:
        self.absent: frozenset[str] = frozenset()
        self.asked = ""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name in self.absent:
            self.asked = name
            raise _Needed(name)


_demand = _Demand()


def _connection(jobs: socket.socket) -> socket.socket:
    """That of this child's job. The notebook hears the number of the process; one that it gave up is passed over."""
    while True:
        descriptors = socket.recv_fds(jobs, 1, 1)[1]
        connection = socket.socket(fileno=descriptors[0])
        try:
            connection.sendall(struct.pack("<Q", os.getpid()))
        except OSError:
            connection.close()
        else:
            jobs.close()
            return connection


def _leave() -> None:
    """Keeper and kernels are gone: take the private directory along."""
    shutil.rmtree(os.path.dirname(os.readlink("/proc/self/fd/2")), ignore_errors=True)
    os.kill(os.getpid(), signal.SIGKILL)  # without callgrind's dump at exit


def _end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _rehearse() -> None:
    """Run what every job runs, so that children inherit valgrind's translations of it."""
    import torch

    from torchbench_magic.process import send, send_modules

    a = torch.ones(2, 4)
    torch.add(a, a * a, out=torch.empty(2, 4))
    layer = torch.nn.Linear(4, 4)
    code = marshal.dumps(_like_the_timed_loop.__code__, 2)
    with send.pack_variables(["a", "layer"], {"a": a, "layer": layer}, loaded=send_modules.Loaded()) as parcel:
        job = {
            "path": [],
            "search": os.environ["PATH"],
            "directory": "/",
            "threads": 1,
            "dtype": "float32",
            "grad": True,
            "settings": {},
            "names": parcel.data,
            "form": "function",
            "code": code,
            "empty": code,
            "kept": ["a", "layer"],
            "number": _WARM_CALLS,
            "layout": 0,
        }
        job = pickle.loads(pickle.dumps(job, protocol=5))
        _count(job, _prepared(job, parcel.storages), is_rehearsal=True)


def _like_the_timed_loop(calls: Any, clock: Any, before: Any, after: Any, kept: dict[str, Any]) -> None:
    a, layer = kept["a"], kept["layer"]
    before()
    clock()
    for _ in calls:
        layer(a)
        a + a * a
    clock()
    after()


def _answer(connection: socket.socket) -> None:
    """Take one job, count it and say what came of it."""
    from . import client_requests

    mine = os.getpid()
    head, descriptors, _, _ = socket.recv_fds(connection, 8, 1)
    (size,) = struct.unpack("<Q", head)
    job = pickle.loads(_exactly(connection, size))
    silent = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(silent, descriptor)
    stage = "load"
    try:
        client_requests.be_threaded()
        namespace = _prepared(job, descriptors[0] if descriptors else None)
        stage = "stmt"
        _count_library(job) if job["form"] == "library" else _count(job, namespace)
        answer: dict[str, Any] = {"ok": True}
    except BaseException as error:  # noqa: BLE001  (whatever the user's code raises is reported)
        frames, traceback = [], error.__traceback__
        while traceback is not None:
            frames.append((traceback.tb_frame.f_code.co_filename, traceback.tb_lineno))
            traceback = traceback.tb_next
        answer = {"ok": False, "stage": stage, "type": type(error).__name__, "message": _said(error), "frames": frames}
    if _demand.asked:
        answer = {"ok": False, "needs": _demand.asked}
    if os.getpid() != mine:  # a fork that Python did not hear of: the notebook reads the files of the other process
        _end()
    data = pickle.dumps(answer, protocol=5)
    connection.sendall(struct.pack("<Q", len(data)) + data)
    connection.shutdown(socket.SHUT_WR)


def _said(error: BaseException) -> str:
    try:
        return str(error)[:2000]
    except Exception:  # noqa: BLE001  (a user's __str__)
        return ""


def _exactly(connection: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view, got = memoryview(data), 0
    while got < size:
        more = connection.recv_into(view[got:], size - got, socket.MSG_WAITALL)
        if not more:
            raise EOFError("the client went away")
        got += more
    return data


def _prepared(job: dict[str, Any], storages: int | None) -> dict[str, Any]:
    """The names of the code, and the state of torch it is to find; the descriptor is of the bytes of the tensors."""
    import torch

    from torchbench_magic.process import send

    from . import level_heap

    sys.path += [entry for entry in job["path"] if entry not in sys.path]
    os.environ["PATH"] = job["search"]
    os.chdir(job["directory"])
    if torch.get_num_threads() != job["threads"]:
        torch.set_num_threads(job["threads"])
    torch.set_default_dtype(getattr(torch, job["dtype"]))
    implied = {"__name__": "__main__", "__builtins__": builtins}
    level_heap.level()
    namespace = send.unpack_variables(job["names"], storages, implied, is_ours=True)
    if job["settings"]:  # put after the variables are there, which would be made by them
        from torchbench_magic.process.settings import put_settings

        put_settings(job["settings"])
    torch.set_grad_enabled(job["grad"])
    return namespace


def _count(job: dict[str, Any], namespace: dict[str, Any], *, is_rehearsal: bool = False) -> None:
    """Run the statement and the empty loop, each between two toggles of the collection and followed by a dump.

    In a rehearsal nothing is collected and nothing dumped.
    """
    from . import client_requests, level_heap

    toggle = client_requests.builtin((client_requests.TOGGLE,))
    nothing = client_requests.builtin((client_requests.IS_RUNNING,))
    dump_warm, dump_stmt, dump_empty = (client_requests.dump(name) for name in (b"warm", b"stmt", b"empty"))
    if is_rehearsal:
        toggle = dump_warm = dump_stmt = dump_empty = nothing
    number, warm = job["number"], min(job["number"], _WARM_CALLS)
    runs: list[_FunctionForm | _ModuleForm] = []
    for code in (job["code"], job["empty"]):
        compiled = marshal.loads(code)
        if job["form"] == "module":
            runs.append(_ModuleForm(compiled, namespace))
        else:
            kept = {name: namespace[name] for name in job["kept"] if name in namespace}
            runs.append(_FunctionForm(FunctionType(compiled, namespace, "<module>"), kept, nothing))
    toggle()
    if job["form"] == "module":
        _ModuleForm(marshal.loads(job["warm"]), namespace)(None, nothing)
    else:
        for run in runs:
            for _ in range(_WARM_PASSES):
                run(itertools.repeat(None, warm), nothing)
    toggle()
    passes = [itertools.repeat(None, number) for _ in runs]
    gc.disable()
    level_heap.level()  # also of what the first calls replaced, such as caches
    level_heap.shift(job["layout"])
    dump_warm()  # how often functions were called until now: see `counting.callgrind_file.since`
    for run, calls, dump in zip(runs, passes, (dump_stmt, dump_empty), strict=True):
        run(calls, toggle)
        dump()


def _count_library(job: dict[str, Any]) -> None:
    """As `_count`, of a compiled C++ snippet, which switches the collection itself (`cpp/runtime.h`)."""
    from . import client_requests, level_heap

    snippet = client_requests.CountedSnippet(job["library"], job["number"], min(job["number"], _WARM_CALLS))
    level_heap.level()
    level_heap.shift(job["layout"])
    status, text = snippet.run()
    if status != _SNIPPET_OK:
        kind, _, message = text.partition(": ")
        raise type(kind or "break", (Exception,), {})(message)  # named as it is in C++


class _FunctionForm:
    """The loop that is timed, its clock a toggle."""

    def __init__(self, function: FunctionType, kept: dict[str, Any], nothing: Any) -> None:
        self._function, self._kept, self._nothing = function, kept, nothing

    def __call__(self, calls: Any, clock: Any) -> None:
        self._function(calls, clock, self._nothing, self._nothing, self._kept)


class _ModuleForm:
    """Statements at the level of a module, as torch counts them."""

    def __init__(self, code: Any, namespace: dict[str, Any]) -> None:
        self._code, self._namespace = code, namespace

    def __call__(self, calls: Any, clock: Any) -> None:
        self._namespace["__tb_clock"] = clock
        exec(self._code, self._namespace)
