"""A timing on its way to another interpreter: what is asked, with the variables that its code reads."""

from __future__ import annotations

import ast
import builtins
import linecache
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import CodeType
from typing import Any

from torchbench_magic.cell_body import Body
from torchbench_magic.errors import BodyError, CountError, OptionError
from torchbench_magic.process.code import BoundNames, names_looked_up, parse_body
from torchbench_magic.process.send import FOR_TIMING, Parcel, Purpose, pack_variables, unpack_variables
from torchbench_magic.process.send_modules import looked_up_names
from torchbench_magic.process.settings import (
    generators_and_filters,
    put_generators_and_filters,
    put_settings,
    set_threads,
    unusual_settings,
)

from .plan import Plan
from .sweep import Point
from .task import Task

# The variables travel as they do to be counted on.

_LOCAL, _POINTS = "local:", "the:points"
"""What the names of the calling function begin with on their way, and the name of the points: no code can read one that
is called so."""


@dataclass(frozen=True)
class SentTask:
    """A task without its variables.

    Attributes:
        bodies, setup, plan, flags: as in `Task`.
        kind, of_its_kind: the class of the task, and what only tasks of this class have.
        trees: `ast.dump` of a body -> its tree after the shell's AST transformers, where these change it.
        awaits: the code awaits at its own level.
        settings: of torch and NumPy, where they are not as a process begins with.
        drawn: where the random generators stand, warning filters and the like; see `generators_and_filters`.
        threads, dtype, grad: torch's thread count, default dtype and grad mode.
        directory: the working directory.
        variables: as `pack_variables` made them.
        texts: file -> its text, of cells that functions among them are of; of files of the disk the other process has
            its own.
    """

    bodies: Mapping[str, Body]
    setup: Sequence[Body]
    plan: Plan
    flags: int
    kind: type[Task]
    of_its_kind: Mapping[str, Any]
    trees: Mapping[str, ast.Module]
    awaits: bool
    settings: Mapping[str, Any]
    drawn: Mapping[str, Any]
    threads: int
    dtype: str
    grad: bool
    directory: str
    variables: bytes = b""
    texts: Mapping[str, str] = field(default_factory=dict)


def packed(
    task: Task, points: Sequence[Point], *, awaits: bool, purpose: Purpose = FOR_TIMING
) -> tuple[SentTask, Parcel]:
    """What is sent, and the parcel that holds the bytes of the tensors, to be closed.

    Args:
        points: those that are to be measured.
        awaits: the code awaits at its own level.
        purpose: where it is sent to.

    Raises:
        BodyError: in one line: a variable that cannot travel, and the way out.
        OptionError: what is asked does not go with processes.
    """
    if task.counting is not None:
        raise OptionError("--callgrind counts the same in every process: use only one of --callgrind and --processes")
    codes = {part: looked_up(task, part) for part in task.python}
    used = {n for part in codes for code in codes[part] for n in names_looked_up(code) - _made_by(task, [part])}
    used -= _made_by(task, [part for part in task.python if part in task.setup])  # not that of C++
    words = {word for each in codes.values() for code in each for word in looked_up_names(code)}
    names = {**{name: task.implied[name] for name in used & task.implied.keys()}, **task.namespace}
    own = {_LOCAL + name: task.local[name] for name in used & task.local.keys()} | {_POINTS: list(points)}
    sent = sent_task(task, awaits=awaits)
    try:
        every = {**names, **own}
        parcel = pack_variables(used | own.keys(), every, words=words, home=task.namespace, purpose=purpose)
    except CountError as error:
        raise BodyError(str(error)) from None
    texts = {file: "".join(linecache.getlines(file)) for file in parcel.files if not os.path.exists(file)}
    return replace(sent, variables=parcel.data, texts={file: text for file, text in texts.items() if text}), parcel


def looked_up(task: Task, part: Body) -> list[CodeType]:
    """The code whose names are to travel; none of C++."""
    return [code for one in task.compiled([part]) for code in (one.code, one.last) if code is not None]


def _made_by(task: Task, parts: Sequence[Body]) -> set[str]:
    """Names that these bind before they read them: what the notebook has of that name stays here."""
    trees = [parse_body(part, flags=task.flags, transform_ast=task.transform_ast) for part in parts]
    names = BoundNames(ast.Module([line for tree in trees for line in tree.body], []))
    return names.bound - names.reset


def sent_task(task: Task, *, awaits: bool) -> SentTask:
    """What is sent besides variables."""
    import torch

    plain = Plan(**{item.name: getattr(task.plan, item.name) for item in fields(Plan)})
    return SentTask(
        bodies=dict(task.bodies),
        setup=list(task.setup),
        plan=replace(plain, processes=None, engines=None),
        flags=task.flags,
        kind=type(task),
        of_its_kind=task.of_its_kind,
        trees=_changed_trees(task.python, task.flags, task.transform_ast),
        awaits=awaits,
        settings=unusual_settings(),
        drawn=generators_and_filters(),
        threads=torch.get_num_threads(),
        dtype=str(torch.get_default_dtype()).removeprefix("torch."),
        grad=torch.is_grad_enabled(),
        directory=os.getcwd(),
    )


def _changed_trees(
    parts: Sequence[Body], flags: int, transform_ast: Callable[[Any], Any] | None
) -> dict[str, ast.Module]:
    if transform_ast is None:
        return {}
    found = {}
    for part in parts:
        before = _written(parse_body(part, flags=flags))
        after = parse_body(part, flags=flags, transform_ast=transform_ast)
        if _written(after) != before:
            found[before] = after
    return found


def _written(tree: ast.Module) -> str:
    return ast.dump(tree, include_attributes=True)


def unpacked(sent: SentTask, storages: int | None) -> Task:
    """The task in the other interpreter, which is to do nothing else: settings are put, the directory is changed.

    Args:
        storages: descriptor of the bytes of the tensors; None where there are none.
    """
    os.chdir(sent.directory)
    for file, text in sent.texts.items():
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    _put_threads_and_dtype(sent)
    implied = {"__name__": "__main__", "__builtins__": builtins}
    try:
        names = unpack_variables(sent.variables, storages, implied, is_ours=True)
    except Exception as error:  # noqa: BLE001  (whatever the user's objects raise while they are made)
        why = (str(error).splitlines() or [""])[0]
        raise BodyError(
            f"the variables cannot be made in another process ({type(error).__name__}: {why}): make them in the setup"
        ) from None
    put_settings_of(sent)
    return task_from(sent, names)


def put_settings_of(sent: SentTask) -> None:
    """Threads, default dtype, and what `unusual_settings` and `generators_and_filters` found; after the variables are
    made, which would be made by them."""
    import torch

    _put_threads_and_dtype(sent)
    put_settings(sent.settings)
    put_generators_and_filters(sent.drawn)
    torch.set_grad_enabled(sent.grad)


def _put_threads_and_dtype(sent: SentTask) -> None:
    import torch

    set_threads(sent.threads)
    torch.set_default_dtype(getattr(torch, sent.dtype))


def task_from(sent: SentTask, names: dict[str, Any]) -> Task:
    """The task in the other process; ``names``: what travelled, the globals of its code."""
    points = names.pop(_POINTS)
    local = {name.removeprefix(_LOCAL): names.pop(name) for name in list(names) if name.startswith(_LOCAL)}
    known: dict[str, Any] = {"setup": sent.setup, "plan": sent.plan, "points": points, "flags": sent.flags}
    known |= sent.of_its_kind
    transformed = (lambda tree: sent.trees.get(_written(tree), tree)) if sent.trees else None
    return sent.kind(sent.bodies, namespace=names, local=local, transform_ast=transformed, **known)
