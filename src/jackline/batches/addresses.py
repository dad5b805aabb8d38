"""Know addresses that lead elsewhere than their text says.

Rules: (1) pure; (2) what some server on the way may read as a dot segment is one: encoded once or
several times, with a backslash, behind parameters, in overlong UTF-8.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes, urlsplit

_MOST_LAYERS = 5
_LEFT_OUT = re.compile(r"[\t\r\n]")
"""Readers of addresses drop these."""


def has_dot_segments(url: str) -> bool:
    """Whether its path holds `.` or `..` as a segment, or a backslash, however they are written."""
    try:
        path = urlsplit(_LEFT_OUT.sub("", url)).path.encode("utf-8", "surrogatepass")
    except ValueError:
        return True  # no address at all
    for _ in range(_MOST_LAYERS):
        if b"\\" in path or any(_is_dots(each) for each in path.split(b"/")):
            return True
        path, before = unquote_to_bytes(path), path
        if path == before:
            return False
    return True


def _is_dots(segment: bytes) -> bool:
    return segment.replace(b"\xc0\xae", b".").partition(b";")[0].strip() in (b".", b"..")
