"""Fuzz a target guided by coverage, with atheris, in a process of its own.

    python -m tests.fuzz.coverage_guided [--seconds N] [TARGET...]

Rules: atheris is no dependency: it is installed beside the project, into .cache, when it is needed,
and where that fails nothing is fuzzed and this is said; the corpus that has grown is kept in
.cache, so that the next run goes on from there; what was found is told with the file that holds it.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.fuzz import engine

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "fuzz"
WANTED = "atheris==3.0.0"
_LONGEST = 8_000
_MOST_MEGABYTES = 1_500
# One input that takes so long hangs; a busy machine is slow, but not that slow.
_HANGS_SECONDS = 60
_TOLD = 6_000


@dataclass(frozen=True, slots=True)
class Done:
    """How one run of the fuzzer ended; code 0 means that it found nothing."""

    code: int
    told: str


@cache
def atheris_folder() -> Path | None:
    """Where atheris is; installed on first use. None where it cannot be had."""
    folder = CACHE / f"{WANTED}-py{sys.version_info.major}{sys.version_info.minor}"
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as made:
            fresh = Path(made) / "packages"
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
            words = [*command, "--disable-pip-version-check", "--target", str(fresh), WANTED]
            if subprocess.run(words, check=False, capture_output=True).returncode:
                return None
            # Moved as a whole, so that two test processes cannot see each other's half of it.
            with suppress(OSError):
                fresh.rename(folder)
    return folder


def fuzz(name: str, seconds: float) -> Done:
    """Fuzz one target for a time."""
    folder = atheris_folder()
    if folder is None:
        return Done(1, f"{WANTED} cannot be installed on this machine")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(folder)))}
    words = [sys.executable, "-m", "tests.fuzz.coverage_guided", "--inside", name]
    done = subprocess.run(
        [*words, "--seconds", str(seconds)],
        check=False,
        cwd=ROOT,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return Done(done.returncode, done.stdout.decode("utf-8", "replace")[-_TOLD:])


def _inside(name: str, seconds: float) -> None:
    """Fuzz in this process, which atheris ends."""
    atheris = importlib.import_module("atheris")
    # Some modules are imported when they are first needed, so this stays in force.
    with atheris.instrument_imports(include=["jackline", "tests.fuzz.planted"]):
        _fuzz(atheris, name, seconds)


def _fuzz(atheris: Any, name: str, seconds: float) -> None:
    corpus = CACHE / name / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    target = engine.target(name)
    for number, data in enumerate(engine.inputs(name)):
        (corpus / f"seed-{number}").write_bytes(data)
    words = CACHE / name / "words.txt"
    words.write_text("\n".join(map(_quoted, target.WORDS)) + "\n", encoding="ascii")
    flags = [
        f"-max_total_time={max(1, round(seconds))}",
        f"-max_len={_LONGEST}",
        f"-rss_limit_mb={_MOST_MEGABYTES}",
        f"-timeout={_HANGS_SECONDS}",
        f"-artifact_prefix={CACHE / name}{os.sep}",
        f"-dict={words}",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *flags, str(corpus)], target.check)
    atheris.Fuzz()


def _quoted(word: bytes) -> str:
    """A word as libFuzzer's dictionaries have it."""
    return '"' + "".join(f"\\x{byte:02x}" for byte in word) + '"'


def main(given: Sequence[str] | None = None) -> int:
    """Fuzz the targets that the arguments name, or all, one after another."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(engine.NAMES))
    parser.add_argument("--seconds", type=float, default=300.0, help="for each target")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    arguments = parser.parse_args(given)
    if arguments.inside:
        _inside(arguments.inside, arguments.seconds)
        return 0
    unknown = set(arguments.targets) - set(engine.NAMES)
    if unknown:
        parser.error(f"there is no target {', '.join(sorted(unknown))}")
    if atheris_folder() is None:
        print(f"{WANTED} cannot be installed on this machine; Hypothesis alone looks, in make test")
        return 0
    failed = 0
    for name in arguments.targets or engine.NAMES:
        done = fuzz(name, arguments.seconds)
        last = [line for line in done.told.splitlines() if "cov:" in line][-1:]
        print(f"{name}: {'nothing found' if done.code == 0 else 'FOUND'} {''.join(last).strip()}")
        if done.code:
            failed = 1
            print(done.told)
            print(
                f"next: when it is fixed, move the file to {engine.FOUND.relative_to(ROOT) / name}/"
            )
    return failed


if __name__ == "__main__":
    sys.exit(main())
