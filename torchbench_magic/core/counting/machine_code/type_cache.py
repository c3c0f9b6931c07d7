"""Bring CPython's cache of attribute look-ups to a canonical state, so that counts do not depend on its history.

The attributes of all types are found in one table of 4,096 entries. Where an entry stands is decided by the version tag
of its type, and tags are given in the order in which types are first looked at (`MCACHE_HASH` and `assign_version_tag`
in CPython's Objects/typeobject.c). One class more, earlier in the process, moved a count by 300 to 500 instructions
where an entry that the code uses was taken meanwhile, and by 370 a call, 1.5 % of a small module's, where two entries
of the code itself came to stand at one place.
"""

from __future__ import annotations

import ctypes
from typing import Any

__all__ = ["level_types"]

_ENTRIES = 1 << 12
_PER_TYPE = 500
"""Tags that one type is given; CPython from 3.12 on gives each a thousand at most."""


def level_types() -> None:
    """Forget all entries, and let the next type have a tag that is a multiple of the size of the table.

    A Python that numbers types in another way is left as it is: its counts may differ between notebooks.
    """
    last_tag = ctypes.pythonapi.PyType_ClearCache
    last_tag.restype = ctypes.c_uint
    for _ in range(4 * _ENTRIES // _PER_TYPE):
        missing = -(last_tag() + 1) % _ENTRIES
        if not missing:  # what else was looked at for the first time may have taken a tag as well
            break
        kind: Any = type("Numbered", (), {})
        for _ in range(min(missing, _PER_TYPE)):
            kind.number = 0  # its tag is no longer valid
            getattr(kind, "number")  # noqa: B009  (Python's specialised instructions might skip the look-up)
