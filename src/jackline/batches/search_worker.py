"""Search files for a pattern, in a process of its own: `python search_worker.py < question`.

Rules: (1) only the standard library is imported: it runs isolated and starts in a few milliseconds;
(2) links are not followed and only ordinary files are opened, so that it never leaves its folder;
(3) hits are printed as they are found, so that they survive when the search is stopped; (4) the
last line says what was skipped.
"""

from __future__ import annotations

import fnmatch
import io
import json
import os
import re
import stat
import sys
import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any, NoReturn

_SKIPPED_FOLDERS = frozenset(
    {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache"}
)
_LONGEST_LINE = 400
_NICE = 10


def main() -> None:
    """Read the question from the standard input, print `path:line:text` and a last JSON line."""
    question = json.loads(sys.stdin.buffer.read())
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="replace", line_buffering=True)
    if hasattr(os, "nice"):
        os.nice(_NICE)
    pattern = _compiled(question)
    found = files = 0
    too_large: list[str] = []
    for path in _files(question["path"], question["files"]):
        try:
            at = os.lstat(path)
        except OSError:
            continue
        size = at.st_size if stat.S_ISREG(at.st_mode) else 0
        if size > question["largest"]:
            too_large.append(path)
        if not 0 < size <= question["largest"]:
            continue
        files += 1
        for number, line in islice(_matching(path, pattern), question["most"] - found):
            print(f"{path.replace(os.sep, '/')}:{number}:{line[:_LONGEST_LINE]}")  # noqa: T201
            found += 1
        if found == question["most"]:
            break
    full = found == question["most"]
    summary = {"found": found, "files": files, "full": full, "too_large": too_large[:5]}
    print(f"\x1e{json.dumps(summary)}")  # noqa: T201 -- its answer


def _compiled(question: dict[str, Any]) -> re.Pattern[str]:
    """The pattern; says why not and ends the process otherwise."""
    timer = threading.Timer(question["compile_seconds"], _end, ["it takes too long to compile"])
    timer.daemon = True
    timer.start()
    try:
        flags = re.IGNORECASE if question["any_case"] else 0
        return re.compile(question["pattern"], flags)
    except re.error as error:
        _end(error.msg)
    except RecursionError:
        _end("it is nested too deeply")
    except (OverflowError, ValueError, MemoryError) as error:
        _end(str(error) or "it is too large")
    finally:
        timer.cancel()


def _end(why: str) -> NoReturn:
    print(f"\x1e{json.dumps({'bad_pattern': why})}")  # noqa: T201 -- its answer
    sys.stdout.flush()
    os._exit(0)  # from whatever thread, and whatever the other one is doing


def _files(root: str, name: str) -> Iterator[str]:
    if not os.path.isdir(root):  # noqa: PTH112 -- plain strings: a third of the time on large trees
        yield root
        return
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(child for child in folders if child not in _SKIPPED_FOLDERS)
        for child in sorted(names):
            path = os.path.normpath(os.path.join(folder, child))  # noqa: PTH118
            shown = path.replace(os.sep, "/") if "/" in name else child
            if not name or fnmatch.fnmatch(shown, name):
                yield path


def _matching(path: str, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 -- as above
            content = file.read()
    except OSError:
        return  # unreadable, or gone since it was listed; neither is a hit
    if b"\0" in content[:8_192]:
        return
    for number, ended in enumerate(content.decode("utf-8", "replace").split("\n"), 1):
        line = ended.removesuffix("\r")
        if pattern.search(line):
            yield number, line


if __name__ == "__main__":
    main()
