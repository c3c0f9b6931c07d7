"""Objects that keep settings by name: reading a setting without running the user's code, and putting it back."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CellType, MemberDescriptorType
from typing import Any, ClassVar, Protocol

from torchbench_magic.core.code.reached_objects import slot_values

__all__ = ["ABSENT", "OPAQUE", "Holder", "OfCell", "OfClass", "OfDict", "OfSlots", "OfTensors"]


class _Token(enum.Enum):
    ABSENT, OPAQUE = 0, 1


ABSENT, OPAQUE = _Token.ABSENT, _Token.OPAQUE
"""There is nothing; there is something that is no switch."""
_MOST_KEYS = 1_000


class Holder(Protocol):
    """Something that holds values by name: ``(key, value)`` of all or of some of them, and a way to put one back.

    Attributes:
        is_put_back: whether `put` can.
        is_global: there is one of it, of which no alternative can have a copy.
    """

    @property
    def is_put_back(self) -> bool: ...

    @property
    def is_global(self) -> bool: ...

    def items(self, keys: frozenset[str] | None) -> Iterator[tuple[str, Any]]: ...

    def put(self, key: str, value: Any) -> None: ...

    def label(self, key: str) -> str: ...


@dataclass(frozen=True)
class OfDict:
    """A dict, or the dict of an object; ``form`` says a key as the code does. Attributes of a
    library's object that begin with an underscore may be hidden: they are no switches, and there are many."""

    held: dict[Any, Any]
    form: str
    is_global: bool = False
    is_hidden: bool = False
    is_put_back: ClassVar[bool] = True

    def items(self, keys: frozenset[str] | None) -> Iterator[tuple[str, Any]]:
        if keys is not None:
            yield from ((key, self.held[key]) for key in keys if key in self.held)
        elif len(self.held) <= _MOST_KEYS:
            for key, value in list(self.held.items()):
                if type(key) is str and not (self.is_hidden and key[:1] == "_"):
                    yield key, value

    def put(self, key: str, value: Any) -> None:
        if value is ABSENT:
            self.held.pop(key, None)
        else:
            self.held[key] = value

    def label(self, key: str) -> str:
        return self.form.format(key)


@dataclass(frozen=True)
class OfClass:
    """The attributes of a class: read from its own dict, put by ``type`` itself, whatever its metaclass says."""

    kind: type
    is_put_back: ClassVar[bool] = True
    is_global: ClassVar[bool] = True

    def items(self, keys: frozenset[str] | None) -> Iterator[tuple[str, Any]]:
        for key, value in list(vars(self.kind).items()):
            if (key in keys) if keys is not None else not key.startswith("__"):
                yield key, value

    def put(self, key: str, value: Any) -> None:
        if value is ABSENT:
            type.__delattr__(self.kind, key)
        else:
            type.__setattr__(self.kind, key, value)

    def label(self, key: str) -> str:
        return f"{self.kind.__qualname__}.{key}"


@dataclass(frozen=True)
class OfSlots:
    """The slots of an instance of a user's class."""

    value: Any
    slots: Mapping[str, MemberDescriptorType]
    name: str
    is_put_back: ClassVar[bool] = True
    is_global: ClassVar[bool] = False

    def items(self, keys: frozenset[str] | None) -> Iterator[tuple[str, Any]]:
        for key, value in slot_values(self.value, self.slots):
            if keys is None or key in keys:
                yield key, value

    def put(self, key: str, value: Any) -> None:
        if value is ABSENT:
            self.slots[key].__delete__(self.value)
        else:
            self.slots[key].__set__(self.value, value)

    def label(self, key: str) -> str:
        return f"{self.name}.{key}"


@dataclass(frozen=True)
class OfCell:
    """A variable of an enclosing function."""

    cell: CellType
    name: str
    is_put_back: ClassVar[bool] = True
    is_global: ClassVar[bool] = True

    def items(self, keys: frozenset[str] | None) -> Iterator[tuple[str, Any]]:
        try:
            yield self.name, self.cell.cell_contents
        except ValueError:  # not bound yet
            return

    def put(self, key: str, value: Any) -> None:
        if value is not ABSENT:
            self.cell.cell_contents = value

    def label(self, key: str) -> str:
        return self.name


@dataclass(frozen=True)
class OfTensors:
    """Dtype, device and ``requires_grad`` of tensors; a cast cannot be undone, so these are not put back."""

    tensors: Mapping[str, Any]
    name: str
    is_put_back: ClassVar[bool] = False
    is_global: ClassVar[bool] = False

    def items(self, keys: frozenset[str] | None) -> Iterator[tuple[str, Any]]:
        for name, tensor in list(self.tensors.items()):
            if tensor is not None:
                at = f"{self.name}.{name}" if name else self.name
                yield f"{at}.dtype", tensor.dtype
                yield f"{at}.device", tensor.device
                yield f"{at}.requires_grad", bool(tensor.requires_grad)

    def put(self, key: str, value: Any) -> None:
        raise TypeError("a cast of a tensor cannot be undone")

    def label(self, key: str) -> str:
        return key
