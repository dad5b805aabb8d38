"""The reader of jackline.toml: any bytes, as the user's own file and as a project's.

Rules: a configuration comes out, or the error that tells all faults, and nothing else; what is said
about a small file is small; nothing is looked up or run.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from jackline.errors import JacklineError
from tests.config.places import Machine
from tests.docs.pages import DOCS, FENCE

WORDS = (
    *(
        b"\n[",
        b"]\n",
        b"[[upstream]]\n",
        b" = ",
        b'"',
        b"'''",
        b'"""',
        b"{",
        b"}",
        b"[",
        b"#",
        b"\\",
    ),
    *(b"state", b"stream", b"listen.", b"host", b"port", b"token", b"hold.", b"quota", b"limits."),
    *(b"env:HOME", b"file:/x", b"cmd:true", b"15m", b"512MB", b"1e400", b"-0", b"nan", b"inf"),
    *(
        b"true",
        b"1979-05-27",
        b"0x7fffffffffffffffffff",
        b"\\ud800",
        b"\0",
        b"\xff",
        b"\xef\xbb\xbf",
    ),
    *(b"[tool.jackline]\n", b"models", b"headers", b"caps.tags", b"prices", b"preset", b"kind"),
)
_MOST_WORDS = 20_000
_WORDS_PER_BYTE = 200


def seeds() -> Iterable[bytes]:
    """Every example of the pages, and some that were wrong once."""
    for page in sorted(DOCS.glob("*.md")):
        for language, body in FENCE.findall(page.read_text("utf-8")):
            if language == "toml":
                yield body.encode()
    yield b""
    yield b"\xef\xbb\xbfstate = 's'\r\n"
    yield b'stream = "blok"\n[hold]\nquota = "15 parsecs"\n[caps.tags]\nnight = 0\n'
    yield b"a = " + b"[" * 200
    yield b"a." * 300 + b"b = 1"


def check(data: bytes) -> None:
    """Load the bytes as the user's file, and as a project's."""
    machine = _machine()
    own, project = machine.folders.config / "jackline.toml", machine.project / "jackline.toml"
    for path in (own, project):
        path.write_bytes(data)
        said = ""
        try:
            machine.load(with_secrets=False)
        except JacklineError as error:
            said = error.message
        finally:
            path.unlink()
        assert len(said) <= _MOST_WORDS + _WORDS_PER_BYTE * len(data), "too many words about it"


@cache
def _machine() -> Machine:
    folder = tempfile.mkdtemp(prefix="jackline-fuzz-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Machine(Path(folder))
