"""Break the promises of flows one by one, and see that a test notices each.

    python -m tests.mutants                 all of promises.txt: seconds each, drills minutes
    python -m tests.mutants parked hook     those whose promise has one of these words
    python -m tests.mutants --list hook     only say which these are

Rules: (1) everything is broken in a temporary copy of the tree, never in the tree; (2) a mutant
counts as caught only by tests that pass without it; one that makes them hang is caught, too; (3) a
text that is no longer in the code is told and counts as not caught: whoever changed the code
changes the table. Exit 1 when a promise was broken unnoticed.
Not here: running with the suite (it would take as long again), the promises' own tests.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("promises.txt")
PATIENCE_S = 900.0


@dataclass(frozen=True, slots=True)
class Mutant:
    """One promise, the lines that keep it, the lines that would not, and who should notice."""

    promise: str
    file: str
    tests: tuple[str, ...]
    kept_by: str
    broken_by: str


def mutants(table: str) -> Iterator[Mutant]:
    """What the table holds: blocks of `# promise`, `file | tests`, and lines as in a diff."""
    for block in re.split(r"^# ", table, flags=re.MULTILINE)[1:]:
        promise, place, *lines = block.rstrip("\n").split("\n")
        file, _, tests = place.partition(" | ")
        old = [line[1:] for line in lines if line.startswith("-")]
        new = [line[1:] for line in lines if line.startswith("+")]
        yield Mutant(promise, file, tuple(tests.split()), "\n".join(old), "\n".join(new))


class Copy:
    """A copy of the tree, to be broken."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        unneeded = shutil.ignore_patterns("__pycache__", ".*", "node_modules", "*.pyc")
        for name in ("src", "tests", "examples", "docs"):
            shutil.copytree(ROOT / name, folder / name, ignore=unneeded)
        shutil.copy(ROOT / "pyproject.toml", folder)

    def noticed_by(self, mutant: Mutant) -> str:
        """The test that notices, or why nothing does."""
        path = self.folder / "src" / "jackline" / mutant.file
        whole = path.read_text(encoding="utf-8")
        if whole.count(mutant.kept_by) != 1:
            return "NOT CAUGHT: the code has changed; put its new lines into the table"
        if (before := self.passing(mutant.tests)) != "":
            return f"NOT CAUGHT: its tests fail without it ({before})"
        path.write_text(whole.replace(mutant.kept_by, mutant.broken_by), encoding="utf-8")
        try:
            return self._first_failure(mutant.tests) or "NOT CAUGHT"
        finally:
            path.write_text(whole, encoding="utf-8")

    @cache  # noqa: B019 -- lives as long as the program
    def passing(self, tests: tuple[str, ...]) -> str:
        """The first test that fails though nothing is broken; empty when all pass."""
        return self._first_failure(tests)

    def _first_failure(self, tests: tuple[str, ...]) -> str:
        command = [sys.executable, "-m", "pytest", *(f"tests/{each}" for each in tests)]
        environ = {**os.environ, "PYTHONPATH": str(self.folder / "src")}
        try:
            done = subprocess.run(
                [*command, "-x", "-q", "-p", "no:cacheprovider", "--tb=no", "-rfE"],
                cwd=self.folder,
                env=environ,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "hangs"
        if done.returncode == 0:
            return ""
        named = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, flags=re.MULTILINE)
        return named[1] if named else done.stdout.strip()[-200:]


def main(arguments: list[str]) -> int:
    """Break what was asked for; the exit code."""
    about, usage, _ = (__doc__ or "").split("\n\n", 2)
    reading = ArgumentParser(
        "python -m tests.mutants",
        description=f"{about}\n\n{usage}",
        formatter_class=RawDescriptionHelpFormatter,
    )
    reading.add_argument("words", nargs="*", help="a part of the promises that are meant")
    reading.add_argument("--list", action="store_true", help="list them, and break nothing")
    asked = reading.parse_args(arguments)
    chosen = [
        mutant
        for mutant in mutants(TABLE.read_text(encoding="utf-8"))
        if not asked.words or any(word in mutant.promise for word in asked.words)
    ]
    if not chosen:
        reading.error("no promise has one of these words; --list lists them all")
    if asked.list:
        sys.stdout.writelines(f"{mutant.promise}\n    {mutant.file}\n" for mutant in chosen)
        return 0
    return _broken(chosen)


def _broken(chosen: Sequence[Mutant]) -> int:
    unnoticed = 0
    with TemporaryDirectory(prefix="jackline-mutants-") as folder:
        copy = Copy(Path(folder))
        for mutant in chosen:
            noticed = copy.noticed_by(mutant)
            unnoticed += noticed.startswith("NOT")
            sys.stdout.write(f"{mutant.promise}\n    {noticed}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{unnoticed} of {len(chosen)} not caught\n")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
