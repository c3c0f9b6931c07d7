"""What a function of a count is: its file and library, whose it is, and its name without the paths of a build."""

from __future__ import annotations

import re
from typing import Literal

__all__ = ["GROUPS", "Group", "group_of", "parts_of", "standardized"]

Group = Literal["torch", "Python", "allocator and lookup", "other"]

GROUPS: tuple[Group, ...] = ("torch", "Python", "other", "allocator and lookup")

_ALLOCATOR = re.compile(
    r"^_?(int_)?(malloc|free|calloc|realloc|memalign|posix_memalign|aligned_alloc)(_consolidate)?('\d+)?$"
    r"|^(malloc_consolidate|unlink_chunk.*|_mid_memalign.*|sysmalloc.*|systrim.*|tcache_.*|arena_get.*|checked_request.*)$"
    r"|^operator (new|delete)\b|^je_|^_?Py(Object|Mem)_(Raw)?(Malloc|Free|Calloc|Realloc)$|^_PyMem_|^alloc_perturb$"
    r"|^pymalloc_|^address_in_range|^(new|insert_to_usedpool|allocate_from_new_pool)"
    r"|^(__)?memcmp|^lookdict|^unicodekeys_lookup|^dictkeys_|^_Py_dict_lookup|^_PyDict_(GetItem|LookupIndex|Lookup)"
    r"|^PyDict_GetItem|^_PyType_Lookup|^find_name_in_mro|^unicode_(eq|hash)|^_?PyUnicode_(Eq|.*Hash)"
)
_TORCH = re.compile(r"/(libtorch\w*|libc10\w*|libshm|libgomp\S*|libmkl\S*|libiomp5?)\.so|/torch/|\b(aten|c10)/|^torch/")
_PYTHON = re.compile(r"/(lib)?python[\d.]*(\.so[\d.]*)?$|/(Python|Objects|Modules|Parser)/[^:]*:|/lib-dynload/")

_STANDARD = tuple(
    (re.compile(pattern), to)
    for pattern, to in (
        (r"^.+build/\.\./", "build/../"),
        (r"^.+/build/aten/", "build/aten/"),
        (r"^.+/Python/", "Python/"),
        (r"^.+/Objects/", "Objects/"),
        (r"\s\[.+\]$", ""),
    )
)


def standardized(function: str) -> str:
    for pattern, to in _STANDARD:
        function = pattern.sub(to, function)
    return function


def parts_of(function: str) -> tuple[str, str, str]:
    """``file:function [library]`` taken apart; a part that is not there is empty."""
    text, bracket, library = function.rpartition(" [")
    if not bracket or not library.endswith("]"):
        text, library = function, " "
    file = re.match(r"([^:]*):(?!:)", text)  # to the first colon that is not one of `::`
    return ("", text, library[:-1]) if file is None else (file[1], text[file.end() :], library[:-1])


def group_of(function: str) -> Group:
    _, name, library = parts_of(function)
    if _ALLOCATOR.match(name):
        return "allocator and lookup"
    if _TORCH.search(f"{library}") or _TORCH.search(function.rpartition(" [")[0].partition("::")[0]):
        return "torch"
    if _PYTHON.search(library) or _PYTHON.search(function.partition(" [")[0]):
        return "Python"
    return "other"
