"""A release is the same bytes wherever it is built, and holds what belongs there and no more."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path, PurePosixPath

import pytest
from release.make_dist import bill_of_materials, build, epoch, runtime, write_sums
from release.make_hashes import HASHES, ROOT, TOOLS, pins, read_pins, wanted

from jackline import __version__
from jackline.documentation.handler import Site
from jackline.documentation.sources import Sources

CODE = {".py", ".pyi"}
# What else may stand in the wheel: the dashboard's page, the tools' descriptions, scenarios.
DATA = {
    "jackline/py.typed",
    "jackline/autopsy/page.css",
    "jackline/mcp_server/tools.json",
    *(f"jackline/simulator/scenarios/{name}.toml" for name in ("healthy", "outage", "quota-wall")),
    "jackline/simulator/scenarios/throttle-storm.toml",
}
PAGE = re.compile(
    r"jackline/dashboard/page/[a-z]+\.(js|css|html|svg)|jackline/documentation/site/[a-z]+\.(js|css)"
)
# The documentation as it is written, which the gateway shows.
DOCS_IN_WHEEL = "jackline/documentation/project/"
# Whoever installs a command line does not expect megabytes of text.
# The manual is in it, with its pictures.
LARGEST_WHEEL = 4_000_000
INFO = f"jackline-{__version__}.dist-info/"
NATIVE = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\0asm", b"!<arch>")
SECRETS = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY|gh[pousr]_[A-Za-z0-9]{30}|AKIA[0-9A-Z]{16}"
    rb"|sk-ant-[a-z]+\d\d-[A-Za-z0-9_-]{40}"
)
IN_SDIST = {
    *("src", "docs", "examples", "deploy", "README.md", "ARCHITECTURE.md", "CHANGELOG.md"),
    *("CONTRIBUTING.md", "SECURITY.md", "LICENSE", "constraints.txt", "release", "pyproject.toml"),
    *("PKG-INFO", ".gitignore"),
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both packages."""
    into = tmp_path_factory.mktemp("dist")
    build(into)
    return into


def wheel_in(folder: Path) -> Path:
    return folder / f"jackline-{__version__}-py3-none-any.whl"


def sdist_in(folder: Path) -> Path:
    return folder / f"jackline-{__version__}.tar.gz"


def hashes(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_another_clone_built_by_somebody_else_gives_the_same_bytes(
    built: Path, tmp_path: Path
) -> None:
    clone = tmp_path / "another place"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    (clone / "src" / "jackline" / "left_over.py").write_text("x = 1\n")
    for path in (clone / "src").rglob("*.py"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    settings = "[core]\n\tautocrlf = true\n[tar]\n\tumask = 0077\n"  # as Git for Windows has it
    (tmp_path / ".gitconfig").write_text(settings)
    into = tmp_path / "dist"
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("LC_")},
        "TZ": "Pacific/Kiritimati",
        "LANG": "tr_TR.UTF-8",
        "USER": "somebody",
        "HOME": str(tmp_path),
        "PYTHONHASHSEED": "7",
    }
    words = [sys.executable, "-m", "release.make_dist", "--packages-only", "--into", str(into)]
    subprocess.run(
        [*words, "--source", str(clone)],
        cwd=ROOT,
        env=environ,
        umask=0o077 if os.name != "nt" else -1,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    (into / "SHA256SUMS").unlink()
    assert hashes(into) == hashes(built)


def test_without_git_the_sdist_gives_the_same_wheel(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tarfile.open(sdist_in(built)) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch(ROOT))
    build(tmp_path / "again", tmp_path / f"jackline-{__version__}")
    assert wheel_in(tmp_path / "again").read_bytes() == wheel_in(built).read_bytes()


def test_without_git_and_without_a_date_there_is_a_fixed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert epoch(tmp_path) == epoch(tmp_path) == "1577836800"


@pytest.mark.parametrize("variables", [{"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}, {"PATH": ""}])
def test_where_git_refuses_nothing_else_is_built(
    variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a clone of another user: the folder as it is, dated 2020, is no release."""
    source = tmp_path / "source"
    subprocess.run(["git", "init", "-q", str(source)], check=True)
    (source / "pyproject.toml").write_text("")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for use in (lambda: build(tmp_path / "into", source), lambda: epoch(source)):
        with pytest.raises(SystemExit, match=r"dubious ownership|git cannot be run"):
            use()
    assert not list((tmp_path / "into").iterdir())


def test_the_wheel_holds_our_code_and_known_data_and_nothing_else(built: Path) -> None:
    with zipfile.ZipFile(wheel_in(built)) as wheel:
        for item in wheel.infolist():
            name = item.filename
            kind = item.external_attr >> 28
            assert kind in (0, 8), f"{name} is no plain file"
            assert not wheel.read(item).startswith(NATIVE), f"{name} is native code"
            assert not name.endswith(".pth")
            assert PurePosixPath(name).parts[0] in ("jackline", INFO.rstrip("/")), name
            assert not {"tests", "test", "fuzz"} & set(PurePosixPath(name).parts), name
            if name.startswith("jackline/") and PurePosixPath(name).suffix not in CODE:
                is_page = name.startswith(DOCS_IN_WHEEL) and name.endswith((".md", ".svg", ".png"))
                assert name in DATA or is_page or PAGE.fullmatch(name), f"{name} is not wanted"
    assert wheel_in(built).stat().st_size < LARGEST_WHEEL


def test_the_wheel_brings_the_same_pages_as_the_project(built: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel_in(built)) as wheel:
        wheel.extractall(tmp_path)  # noqa: S202 -- our own
    packaged, own = Sources(tmp_path / DOCS_IN_WHEEL), Sources(ROOT)
    assert packaged.pages.keys() == own.pages.keys()
    assert packaged.pictures.keys() == own.pictures.keys()
    made, wanted_site = Site(packaged), Site(own)
    # What is built is the last commit; pages of the folder may be newer.
    assert made.addresses == wanted_site.addresses
    assert all(made.content(address) for address in made.addresses)
    code = "from jackline.documentation.sources import Sources; print(Sources.installed().root)"
    shown = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert Path(shown.stdout.strip()) == tmp_path / DOCS_IN_WHEEL


def test_the_wheel_says_what_it_is(built: Path) -> None:
    with zipfile.ZipFile(wheel_in(built)) as wheel:
        told = Parser().parsestr(wheel.read(f"{INFO}METADATA").decode())
        about = Parser().parsestr(wheel.read(f"{INFO}WHEEL").decode())
        starts = wheel.read(f"{INFO}entry_points.txt").decode()
        listed = {line.split(",")[0] for line in wheel.read(f"{INFO}RECORD").decode().splitlines()}
        assert listed == set(wheel.namelist())
    assert (told["Name"], told["Version"]) == ("jackline", __version__)
    assert told["License-Expression"] == "Apache-2.0"
    assert told["Requires-Python"] == ">=3.11"
    assert set(told.get_all("Provides-Extra", [])) == {"bedrock", "mcp", "notify", "vertex"}
    assert (about["Root-Is-Purelib"], about["Tag"]) == ("true", "py3-none-any")
    assert starts.split() == ["[console_scripts]", "jackline", "=", "jackline.quick.entry:main"]


def test_the_sdist_holds_what_a_build_needs_and_nothing_of_this_machine(built: Path) -> None:
    places = [os.fsencode(place) for place in {str(ROOT), str(Path.home()), str(Path.cwd())}]
    with tarfile.open(sdist_in(built)) as archive:
        for member in archive.getmembers():
            assert member.isfile() or member.isdir(), member.name
            assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "", "")
            top, *inside = PurePosixPath(member.name).parts
            assert top == f"jackline-{__version__}"
            assert not inside or inside[0] in IN_SDIST, member.name
            file = archive.extractfile(member)
            data = b"" if file is None else file.read()
            assert not data.startswith(NATIVE), member.name
            assert SECRETS.search(data) is None, member.name
            for place in places:
                assert len(place) < 4 or place + b"/" not in data, f"{member.name} names {place!r}"


def test_the_sums_are_those_of_the_files(built: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(built, tmp_path / "dist"))
    sums = write_sums(sorted(copied.iterdir()), copied)
    told = dict(line.split("  ")[::-1] for line in sums.read_text("utf-8").splitlines())
    assert told == hashes(built)


# --- what it needs ---------------------------------------------------------------------------


@pytest.mark.parametrize("path", [HASHES, TOOLS], ids=lambda path: path.name)
def test_hashes_stand_there_without_addresses(path: Path) -> None:
    text = path.read_text("utf-8")
    assert "://" not in text
    assert not re.search(r"^\s*(-i|--index|--extra-index|--find-links|-f)\b", text, re.MULTILINE)
    entries = [each for each in text.split("\n") if each and not each.startswith(("#", "--only"))]
    for line in entries:
        pin, hashed = (
            r"[a-z0-9-]+==\S+( ; sys_platform .+)? \\",
            r"    --hash=sha256:[0-9a-f]{64}( \\)?",
        )
        assert re.fullmatch(f"{pin}|{hashed}", line), line


def test_hashes_are_those_of_the_versions_that_are_tested() -> None:
    told = read_pins(HASHES.read_text("utf-8"))
    known = pins()
    assert {name: known[name] for name in told} == told, "run: python -m release.make_hashes"
    named = {each.name.lower().replace("_", "-") for each in wanted()}
    assert named <= set(told), "run: python -m release.make_hashes"


@pytest.mark.soak
def test_the_hashes_install_and_the_bill_of_materials_tells_what_was_installed(built: Path) -> None:
    with runtime(wheel_in(built)) as python:
        version = subprocess.run(
            [str(python), "-m", "jackline", "--version"], check=True, capture_output=True, text=True
        )
        assert __version__ in version.stdout
        bill = bill_of_materials(python)
        assert bill == bill_of_materials(python)
    document = json.loads(bill)
    assert document["bomFormat"] == "CycloneDX"
    assert "serialNumber" not in document
    assert "timestamp" not in document.get("metadata", {})
    there = {one["name"].lower().replace("_", "-"): one for one in document["components"]}
    told = read_pins(HASHES.read_text("utf-8"))
    assert set(there) - {"jackline"} <= set(told)
    assert {"jackline", "click", "pydantic", "mcp", "botocore"} <= set(there)
    for name, one in there.items():
        assert one["version"] == told.get(name, __version__)
        assert one["purl"].startswith("pkg:pypi/")
        assert "externalReferences" not in one
        assert "file:" not in json.dumps(one)
    licensed = [one for one in there.values() if one.get("licenses")]
    assert len(licensed) > len(there) * 0.9
