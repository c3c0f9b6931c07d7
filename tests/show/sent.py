"""What an output leaves on its page for the modules that draw it, unpacked."""

from __future__ import annotations

import base64
import json
import re
import zlib
from typing import Any

__all__ = ["brought", "left_out", "sent", "unpacked"]

_DATA = re.compile(r"<script data-needs=([\w-]+)>[^<]*?\.push\(\['[\w-]+','([^'<]*)'\]\)</script>")


def unpacked(text: str) -> str:
    """The inverse of ``page_modules.packed_text``."""
    return zlib.decompress(base64.b85decode(text.translate(str.maketrans(",./:[]", "$&<`{}")))).decode("utf-8")


def sent(html: str) -> list[Any]:
    """The data of each drawing, in their order."""
    return [json.loads(unpacked(data)) for _, data in _DATA.findall(html)]


def brought(html: str) -> list[str]:
    """Names of the modules that an output brings, without their versions."""
    listed = re.findall(r"<script data-brings=([\w,-]+)>", html)
    return [name.rpartition("-")[0] for names in listed for name in names.split(",")]


def left_out(html: str) -> set[str]:
    """Names of those that it needs and does not bring."""
    needs = {name.rpartition("-")[0] for name, _ in _DATA.findall(html)}
    return needs - set(brought(html))
