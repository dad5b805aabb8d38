"""A process that journals under a limit that it sets itself; run by test_failures.py on POSIX.

Arguments: the journal's path, and `small-files` (writes beyond a size fail, then the limit is
lifted) or `no-rights` (the folder is not writable). Prints what `health` says meanwhile.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from jackline.journal import Journal
from tests.journal import made

NOBODY = 65534


def under_small_files(path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Journal(path, settings=made.AT_ONCE, wall=lambda: made.NOON) as journal:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
        for number in range(4000):
            journal.announce(made.call(number))
        assert not journal.flush(made.PATIENCE)
        sys.stdout.write(journal.health.problem)
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        made.written(journal)
        assert journal.health.ok


def without_rights(path: Path) -> None:
    path.parent.mkdir()
    path.parent.chmod(0o500)
    if os.geteuid() == 0:
        os.setuid(NOBODY)
    with Journal(path, settings=made.AT_ONCE, wall=lambda: made.NOON) as journal:
        journal.announce(made.call())
        assert not journal.flush(made.PATIENCE)
        sys.stdout.write(journal.health.problem)


if __name__ == "__main__":
    {"small-files": under_small_files, "no-rights": without_rights}[sys.argv[2]](Path(sys.argv[1]))
