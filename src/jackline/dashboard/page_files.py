"""The files of the page, read from the package once, with the headers that keep it shut.

Laws: (1) only the files that are there are served, by their exact names; (2) nothing is loaded from
anywhere but this address, no script but ours runs, and no other site may frame the page.
Not here: who may ask (gateway/doors.py).
"""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable

from jackline.control.face import Asked

PREFIX = b"/_jackline/page/"
FIRST = "index.html"
_TYPES = {
    "html": b"text/html; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}
POLICY = (
    b"default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    b"object-src 'none'; require-trusted-types-for 'script'"
)


class PageFiles:
    """Every file of the page, by name."""

    def __init__(self) -> None:
        self._files = {each.name: each for each in _folder().iterdir() if _type(each.name)}
        self._read: dict[str, bytes] = {}

    @property
    def size(self) -> int:
        """What a browser loads in all, in bytes."""
        return sum(len(each.read_bytes()) for each in self._files.values())

    def answer(self, asked: Asked, name: str) -> None:
        """Send one file."""
        file = self._files.get(name)
        if file is None:
            asked.respond(404, [(b"content-type", b"text/plain")], b"there is no such file\n")
            return
        body = self._read.get(name)
        if body is None:
            body = self._read[name] = file.read_bytes()
        headers = [
            (b"content-type", _type(name)),
            # A newer service has a newer page: ask each time, it is near.
            (b"cache-control", b"no-cache"),
            (b"content-security-policy", POLICY),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
        ]
        asked.respond(200, headers, body)


def _folder() -> Traversable:
    return files("jackline.dashboard") / "page"


def _type(name: str) -> bytes:
    return _TYPES.get(name.rpartition(".")[2], b"")
