"""Write the pins and hashes of everything that Jackline needs at run time, on every platform.

    python -m release.make_hashes

Rules: versions are those of constraints.txt; hashes are those that the package index of pip's own
configuration publishes for the wheels of that version, all platforms', and no sdist: what is
installed by them runs no code of a build; no address stands in the file.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

ROOT = Path(__file__).parents[1]
HASHES = Path(__file__).with_name("requirements-hashes.txt")
CONSTRAINTS = ROOT / "constraints.txt"
PLATFORMS = {"linux": ("posix", "Linux"), "darwin": ("posix", "Darwin"), "win32": ("nt", "Windows")}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
TOOLS = Path(__file__).with_name("tools.txt")
# What builds a release; pinned, since another version would write other bytes.
_TOOLS_WANTED = ("hatchling==1.33.0", "cyclonedx-bom==7.5.0")
_TOOLS_HEADER = """\
# What builds a release (make_dist.py), with the hashes of its wheels for every platform.
# Made by: python -m release.make_hashes
--only-binary :all:
"""
_HEADER = """\
# Everything that Jackline needs at run time, with all its extras: the versions it was tested with,
# and the hashes of their wheels for every platform. No addresses: pip asks your own index.
#   pip install --require-hashes -r requirements-hashes.txt
#   pip install --no-deps jackline-VERSION-py3-none-any.whl
# Made by: python -m release.make_hashes
--only-binary :all:
"""


@dataclass(slots=True)
class Needed:
    """One package: its version, and the platforms that need it."""

    name: str
    version: str
    platforms: set[str] = field(default_factory=set)

    @property
    def line(self) -> str:
        """What stands before the hashes."""
        pin = f"{self.name}=={self.version}"
        if self.platforms == set(PLATFORMS):
            return pin
        wanted = " or ".join(f'sys_platform == "{each}"' for each in sorted(self.platforms))
        return f"{pin} ; {wanted}"


def pins() -> dict[str, str]:
    """The versions in constraints.txt, by canonical name."""
    lines = CONSTRAINTS.read_text("utf-8").splitlines()
    found = (line.partition("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): version.strip() for name, _, version in found}


def wanted() -> list[Requirement]:
    """What pyproject.toml asks for, with all extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    lines = [*project["dependencies"], *(line for extra in extras for line in extra)]
    return [Requirement(line) for line in lines]


def closure(
    roots: Sequence[Requirement],
    requires: Mapping[str, list[Requirement]],
    versions: Mapping[str, str],
) -> list[Needed]:
    """Every package that some platform needs, by what each of them requires."""
    found: dict[str, Needed] = {}
    for platform in PLATFORMS:
        for python in PYTHONS:
            for name in _needed(roots, requires, platform, python):
                if name not in versions:
                    raise SystemExit(f"{name} is needed on {platform}: pin it in constraints.txt")
                one = found.setdefault(name, Needed(name, versions[name]))
                one.platforms.add(platform)
    return sorted(found.values(), key=lambda one: one.name)


def _needed(
    roots: Sequence[Requirement],
    requires: Mapping[str, list[Requirement]],
    platform: str,
    python: str,
) -> set[str]:
    os_name, system = PLATFORMS[platform]
    environment: dict[str, str] = {
        "implementation_name": "cpython",
        "implementation_version": f"{python}.0",
        "os_name": os_name,
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": system,
        "platform_version": "",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": platform,
    }
    seen: set[tuple[str, str]] = set()
    waiting = [(requirement, "") for requirement in roots]
    names: set[str] = set()
    while waiting:
        requirement, extra = waiting.pop()
        marker = requirement.marker
        if marker is not None and not marker.evaluate({**environment, "extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        names.add(name)
        for each in ("", *requirement.extras):
            if (name, each) not in seen:
                seen.add((name, each))
                waiting += [(inner, each) for inner in requires.get(name, ())]
    return names


def resolved(roots: Sequence[Requirement]) -> tuple[dict[str, list[Requirement]], dict[str, str]]:
    """What each package requires, and its version, as pip resolves them with the constraints."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
    command += ["--disable-pip-version-check", "--report", "-", "--constraint", str(CONSTRAINTS)]
    words = [*command, *map(str, roots)]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE)  # noqa: S603 -- pip
    requires: dict[str, list[Requirement]] = {}
    versions: dict[str, str] = {}
    for item in json.loads(done.stdout)["install"]:
        told = item["metadata"]
        name = canonicalize_name(told["name"])
        requires[name] = [Requirement(line) for line in told.get("requires_dist", ())]
        versions[name] = told["version"]
    return requires, versions


def wheel_hashes(name: str, version: str) -> list[str]:
    """The SHA-256 of every wheel of this version in the index that pip is configured for."""
    hashes = set()
    for link in _links(name):
        if link.is_wheel and link.hash_name == "sha256":
            try:
                _, found, _, _ = parse_wheel_filename(link.filename)
            except InvalidWheelFilename:
                continue  # very old ones have names that nobody reads any more
            if found == Version(version):
                hashes.add(str(link.hash))
    if not hashes:
        raise SystemExit(f"the index has no wheel of {name} {version} with a hash")
    return sorted(hashes)


def _links(name: str) -> Iterator[Any]:
    """Every file that the index lists: pip's own code, so that its configuration is obeyed.

    pip has no command for this; its inner functions may change with a new version of pip.
    """
    from pip._internal.commands import create_command  # noqa: PLC0415 -- only here
    from pip._internal.index.collector import parse_links  # noqa: PLC0415
    from pip._internal.models.link import Link  # noqa: PLC0415

    command: Any = create_command("download")
    options, _ = command.parse_args([])
    with command.main_context():
        session = command.get_default_session(options)
        finder = command._build_package_finder(options, session)  # noqa: SLF001 -- see above
        collector = finder._link_collector  # noqa: SLF001
        # Mirrors and local folders may hold files that nobody else has: the first index counts.
        index = collector.search_scope.index_urls[0].rstrip("/")
        page = collector.fetch_response(Link(f"{index}/{name}/"))
        if page is not None:
            yield from parse_links(page)


def written(header: str, needed: Iterable[Needed], hashes: Mapping[str, list[str]]) -> str:
    """The file's text."""
    entries = []
    for one in needed:
        lines = [one.line, *(f"    --hash=sha256:{each}" for each in hashes[one.name])]
        entries.append(" \\\n".join(lines) + "\n")
    return header + "".join(entries)


def read_pins(text: str) -> dict[str, str]:
    """The versions in such a file, by name."""
    return dict(re.findall(r"^([a-z0-9-]+)==([^\s;]+)", text, re.MULTILINE))


def write(path: Path, header: str, roots: Sequence[Requirement]) -> None:
    """Write one such file."""
    requires, versions = resolved(roots)
    needed = closure(roots, requires, {**versions, **pins()})
    hashes = {one.name: wheel_hashes(one.name, one.version) for one in needed}
    path.write_text(written(header, needed, hashes), encoding="utf-8", newline="\n")
    count = sum(map(len, hashes.values()))
    print(f"{path.relative_to(ROOT)}: {len(needed)} packages, {count} wheels")


def main() -> int:
    """Write both files."""
    write(HASHES, _HEADER, wanted())
    write(TOOLS, _TOOLS_HEADER, [Requirement(line) for line in _TOOLS_WANTED])
    return 0


if __name__ == "__main__":
    sys.exit(main())
