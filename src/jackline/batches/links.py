"""Find the words of a command that mean something else on the disk than they say.

Laws: (1) only reads; (2) every word that may be a path is followed through all links, and so is
every file that a pattern among the words stands for: none leads out of the folder, none that may
be written to into `.git`, none becomes an option; (3) what is not there leads nowhere.
Not here: paths that leave by their text (policy.py), what a program finds by itself when it runs.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from jackline.batches.commands import NotSimpleError, Stage, Word, stages_of
from jackline.batches.git_commands import PLAIN_WRAPPERS
from jackline.batches.policy import names_git, paths_in
from jackline.batches.tool import JsonObject
from jackline.batches.usual_commands import is_harmless

_MOST_FILES = 10_000


def way_out(folder: Path, arguments: JsonObject, *, windows: bool = os.name == "nt") -> str | None:
    """The first word of this shell call that leads out of `folder` by a link; None without one."""
    root = folder.resolve()
    for stage, word, paths in _paths(root, arguments, windows=windows):
        if any(_leaves(each, root) for each in paths):
            return word.text
        if _follows_links(stage) and any(_holds_way_out(each, root) for each in paths):
            return word.text
    return None


def way_into_git(
    folder: Path, arguments: JsonObject, *, windows: bool = os.name == "nt"
) -> str | None:
    """The first word by which a program that may write gets into `.git` under another name."""
    for stage, word, paths in _paths(folder.resolve(), arguments, windows=windows):
        named = any(names_git(part) for part in paths_in(word))
        if not named and not is_harmless(stage) and any(map(is_in_git, paths)):
            return word.text
    return None


def hidden_option(
    folder: Path, arguments: JsonObject, *, windows: bool = os.name == "nt"
) -> str | None:
    """The first word for which a shell would put a file name that looks like an option."""
    for _, word, paths in _paths(folder.resolve(), arguments, windows=windows):
        if word.globbed and word.text[:1] in "*?[" and any(each.name[:1] == "-" for each in paths):
            return word.text
    return None


def is_in_git(path: Path) -> bool:
    """Whether a path, with all links followed, is a repository's own folder or lies in one."""
    try:
        real = path.resolve()
    except (OSError, RuntimeError):
        return True
    for each in (real, *real.parents):
        if names_git(each.name):
            return True
        try:
            # As the file system sees it: some ignore case, some have short names.
            if each.samefile(each.parent / ".git"):
                return True
        except OSError:
            continue
    return False


def _paths(
    root: Path, arguments: JsonObject, *, windows: bool
) -> Iterator[tuple[Stage, Word, list[Path]]]:
    """Every word of the call with all that it may name on the disk."""
    given = arguments.get("cwd")
    place = root / (given if isinstance(given, str) else ".")
    try:
        stages = stages_of(arguments, windows=windows)
    except NotSimpleError:
        return  # the policy has refused it
    for stage in stages:
        for word in stage.words[1:]:
            yield (
                stage,
                word,
                [each for part in paths_in(word) for each in _meant(part, word, place)],
            )


_FOLLOWING = {
    "cp": re.compile(r"-[^-]*L|--de"),
    "rsync": re.compile(r"-[^-]*[Lk]|--copy-"),
    "scp": re.compile(r"-[^-]*r"),
    "tar": re.compile(r"-[^-]*h|--de|--h|[A-Za-z]*h[A-Za-z]*$"),
}
"""By which options programs read what links below a folder lead to."""
_FOLLOWING_UNLESS = {
    "diff": re.compile(r"--no-dereference$"),
    "zip": re.compile(r"-[^-]*y|--symlinks$"),
}


def _follows_links(stage: Stage) -> bool:
    """Whether it reads what links below a folder lead to."""
    words = stage.texts
    programs = words if Path(words[0]).name in PLAIN_WRAPPERS else words[:1]
    for name in (Path(word).name for word in programs):
        if name in _FOLLOWING and any(map(_FOLLOWING[name].match, words)):
            return True
        if name in _FOLLOWING_UNLESS and not any(map(_FOLLOWING_UNLESS[name].match, words)):
            return True
    return False


def _holds_way_out(folder: Path, root: Path) -> bool:
    left = _MOST_FILES
    for at, folders, files in os.walk(folder):
        left -= len(folders) + len(files)
        links = (Path(at, name) for name in (*folders, *files) if Path(at, name).is_symlink())
        if left < 0 or any(_leaves(each, root) for each in links):
            return True
    return False


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
