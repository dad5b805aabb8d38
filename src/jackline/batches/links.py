"""Find the words of a command by which a link would lead it out of the folder.

Laws: (1) only reads; (2) every word that may be a path is followed through all links, and so is
every file that a pattern among the words stands for; (3) what is not there leads nowhere.
Not here: paths that leave by their text (policy.py), what a program finds by itself when it runs.
"""

from __future__ import annotations

import glob
import os
from itertools import islice
from pathlib import Path

from jackline.batches.commands import NotSimpleError, Word, read_command
from jackline.batches.policy import paths_in
from jackline.batches.tool import JsonObject

_MOST_FILES = 10_000


def way_out(folder: Path, arguments: JsonObject, *, windows: bool = os.name == "nt") -> str | None:
    """The first word of this shell call that leads out of `folder` by a link; None without one."""
    root = folder.resolve()
    given = arguments.get("cwd")
    place = root / (given if isinstance(given, str) else ".")
    for word in _words(arguments, windows=windows):
        for part in paths_in(word):
            if any(_leaves(each, root) for each in _meant(part, word, place)):
                return word.text
    return None


def _words(arguments: JsonObject, *, windows: bool) -> list[Word]:
    argv, line = arguments.get("argv"), arguments.get("command")
    if isinstance(argv, list):
        return [Word(str(word)) for word in argv[1:]]
    try:
        stages = read_command(line if isinstance(line, str) else "", windows=windows)
    except NotSimpleError:
        return []  # the policy has refused it
    return [word for stage in stages for word in stage.words[1:]]


def _meant(part: str, word: Word, place: Path) -> list[Path]:
    if "\0" in part:
        return []
    paths = [place / part]
    if word.globbed:
        found = glob.iglob(part, root_dir=place)  # noqa: PTH207 -- absolute ones, too, as a shell
        paths += [place / name for name in islice(found, _MOST_FILES)]
    return paths


def _leaves(path: Path, root: Path) -> bool:
    try:
        return not path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):
        return True  # a circle of links, or no name for a file: nobody knows where it leads
