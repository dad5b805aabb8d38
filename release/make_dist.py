"""Build wheel and sdist so that anybody gets the same bytes, with their hashes and what is in them.

    python -m release.make_dist [--into dist] [--packages-only]

Rules: what is built is the last commit, or the folder as it is where it is no repository; one in
which git does not answer is not built; the builder has a fixed
version, installed beside the project; nothing of the machine gets in: no time, zone, language,
user, umask or path. Hashes for users are in requirements-hashes.txt (make_hashes.py).
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from release.make_hashes import HASHES, ROOT, TOOLS

SUMS = "SHA256SUMS"
# Where there is no git to say when the last change was.
_NO_GIT_EPOCH = "1577836800"
# Both would get into a bill of materials: a time, and packages that nobody installed there.
_TELLING = ("SOURCE_DATE_EPOCH", "PYTHONPATH")
# `git archive` follows these settings of the user: line ends, filters, modes.
_PLAIN_GIT = (
    *("-c", "core.autocrlf=false", "-c", "core.eol=lf"),
    *("-c", f"core.attributesFile={os.devnull}", "-c", "tar.umask=0022"),
)
_NEVER_COPIED = (".*", "__pycache__", "dist", "build", "*.egg-info")


def tools() -> Path:
    """The folder of packages that build a release; installed once for each change of their pins."""
    mark = hashlib.sha256(TOOLS.read_bytes()).hexdigest()[:12]
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = ROOT / ".cache" / "release" / f"{version}-{mark}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as made:
            fresh = Path(made) / "packages"
            _pip("--require-hashes", "-r", str(TOOLS), "--target", str(fresh))
            # Moved as a whole, so that two processes cannot see each other's half of it.
            with suppress(OSError):
                fresh.rename(folder)
    return folder


def build(into: Path, source: Path = ROOT) -> list[Path]:
    """Build both packages of this source; where they are."""
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="jackline-dist-") as folder:
        tree = Path(folder) / "source"
        _copy_source(source, tree)
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HATCH")},
            "SOURCE_DATE_EPOCH": epoch(source),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(tools()),
        }
        made = Path(folder) / "made"
        words = ("-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(made))
        _run(sys.executable, *words, cwd=tree, env=environ)
        found = sorted(made.iterdir())
        for path in found:
            shutil.copyfile(path, into / path.name)
    return [into / path.name for path in found]


def epoch(source: Path) -> str:
    """The moment that everything is dated: of the last commit, or a fixed one."""
    told = os.environ.get("SOURCE_DATE_EPOCH", "")
    if told.isdecimal():
        return told
    if not os.path.lexists(source / ".git"):
        return _NO_GIT_EPOCH
    return _git(source, "log", "-1", "--format=%ct")


def _copy_source(source: Path, tree: Path) -> None:
    """What is built: the last commit, so that nothing that merely lies about gets in."""
    # Without `.git` it may lie, unpacked, within a repository that is about something else.
    if os.path.lexists(source / ".git"):
        # Asked first: where git refuses, it has to say why.
        dirty = _git(source, "status", "--porcelain")
        packed = _run("git", *_PLAIN_GIT, "archive", "--format=tar", "HEAD", cwd=source)
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(tree, filter="data")
        if dirty:
            print(
                "note: built from the last commit; what is not committed is not in it",
                file=sys.stderr,
            )
        return
    shutil.copytree(source, tree, ignore=shutil.ignore_patterns(*_NEVER_COPIED))


def _git(source: Path, *words: str) -> str:
    """What git says of this repository; SystemExit where it refuses, or where there is none."""
    try:
        return _run("git", *words, cwd=source).decode("utf-8", "replace").strip()
    except OSError as error:
        raise SystemExit(f"{source} is a repository, and git cannot be run: {error}") from error


# --- what is in it ---------------------------------------------------------------------------


@contextmanager
def runtime(wheel: Path) -> Iterator[Path]:
    """Python of an environment with the wheel and all that it needs, by the hashes for users."""
    with tempfile.TemporaryDirectory(prefix="jackline-dist-") as folder:
        home = Path(folder) / "runtime"
        _run(sys.executable, "-m", "venv", "--without-pip", str(home))
        python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        _pip("--require-hashes", "-r", str(HASHES), python=python)
        _pip("--no-deps", str(wheel), python=python)
        yield python


def bill_of_materials(python: Path) -> str:
    """The CycloneDX document of what is installed there; the same for the same packages.

    By cyclonedx-bom. Addresses are left out: a package's URL (purl) says what it is, and where it
    was taken from differs by machine.
    """
    # Not by PYTHONPATH: the interpreter that is looked at would have the tools in its path, too.
    start = (
        "import runpy, sys; sys.path.insert(0, sys.argv.pop(1));"
        " runpy.run_module('cyclonedx_py', run_name='__main__')"
    )
    words = ("environment", "--output-reproducible", "--sv", "1.6", "-o", "-", str(python))
    environ = {name: value for name, value in os.environ.items() if name not in _TELLING}
    printed = _run(sys.executable, "-c", start, str(tools()), *words, env=environ)
    document = json.loads(printed)
    for one in document["components"]:
        one.pop("externalReferences", None)
        # Ours was installed from a file, which has none.
        one.setdefault("purl", f"pkg:pypi/{one['name']}@{one['version']}")
    for one in document.get("metadata", {}).get("tools", {}).get("components", ()):
        one.pop("externalReferences", None)
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def write_sums(paths: Sequence[Path], into: Path) -> Path:
    """The hashes of these files, as sha256sum writes and checks them."""
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in paths]
    sums = into / SUMS
    sums.write_text("".join(sorted(lines, key=lambda line: line[66:])), "utf-8", newline="\n")
    return sums


def _pip(*words: str, python: Path | None = None) -> None:
    place = () if python is None else ("--python", str(python))
    flags = ("--quiet", "--disable-pip-version-check", "--no-input")
    _run(sys.executable, "-m", "pip", *place, "install", *flags, *words)


def _run(*words: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> bytes:
    """What a command prints; SystemExit with its last words when it fails."""
    done = subprocess.run(words, check=False, cwd=cwd, env=env, capture_output=True)  # noqa: S603 -- our own
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stderr.decode('utf-8', 'replace')}")
    return done.stdout


def main() -> int:
    """Make all files of a release."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--into", type=Path, default=ROOT / "dist")
    parser.add_argument("--source", type=Path, default=ROOT, help="what is built")
    parser.add_argument("--packages-only", action="store_true", help="wheel and sdist, no more")
    given = parser.parse_args()
    into: Path = given.into
    made = build(into, given.source)
    if not given.packages_only:
        wheel = next(path for path in made if path.suffix == ".whl")
        name, version, *_ = wheel.name.split("-")
        bill = into / f"{name}-{version}.cdx.json"
        with runtime(wheel) as python:
            bill.write_text(bill_of_materials(python), encoding="utf-8", newline="\n")
        made += [bill, Path(shutil.copyfile(HASHES, into / HASHES.name))]
    made.append(write_sums(made, into))
    for path in made:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
