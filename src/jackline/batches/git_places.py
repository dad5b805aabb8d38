"""Know which places belong to a git folder, in which settings make git run programs.

Rules: (1) only reads, and follows all links first; (2) what is called `.git`, or is the same folder
as one that is, is a git folder wherever it lies; (3) inside the project so is what git would take
for one whatever its name, and what a `.git` file names; (4) a work tree that lies in a git folder
(as those of a bare repository may) is no part of it; (5) what cannot be followed or read counts as
one.
Not here: whether a repository can do harm (foreign_repositories/).
"""

from __future__ import annotations

import os
from pathlib import Path

from jackline.batches.policy import names_git
from jackline.foreign_repositories import AstrayError, is_git_folder, named_git_folder


def is_in_git(path: Path, root: Path) -> bool:
    """Whether a path, with all links followed, is a git folder or lies in one.

    `root` is the project's folder, resolved.
    """
    try:
        real = path.resolve()
        return is_in_dot_git(real) or _is_in_other(real, root)
    except (OSError, RuntimeError, AstrayError):
        return True


def is_in_dot_git(real: Path) -> bool:
    """Whether a path without links has a folder `.git` above it, or is one."""
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


def _is_in_other(real: Path, root: Path) -> bool:
    for each in (real, *real.parents):
        if not each.is_relative_to(root):
            return False
        if is_git_folder(each):
            return True
        if os.path.lexists(each / ".git"):  # the top of a work tree
            named = named_git_folder(each / ".git")
            return named is not None and real.is_relative_to(named.resolve())
    return False
