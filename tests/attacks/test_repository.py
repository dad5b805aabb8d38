"""A cloned repository: all that lies in it is a stranger's, and running Jackline there no consent.

Rules: those of this package. The repository has any files it likes; the user runs Jackline's own
script inside it, with a home folder that the repository cannot write to.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from jackline.agents.process.going_on import changed_files
from jackline.assembly import StateDir
from jackline.programs import find_program
from tests.cli.commands import Answer
from tests.cli.gateways import PATIENCE
from tests.ports import free_port

SCRIPT = Path(sys.executable).with_name("jackline.exe" if os.name == "nt" else "jackline")
# Modules that Jackline, its dependencies or the standard library import by these names.
SHADOWS = ("click", "jackline", "pydantic", "platformdirs", "tomllib", "json", "sqlite3", "rich")


@dataclass
class Clone:
    """A repository that was just cloned, and the user who works in it."""

    root: Path
    port: int = field(default_factory=free_port)
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        (self.home / "config" / "jackline").mkdir(parents=True)

    @property
    def folder(self) -> Path:
        return self.root / "clone"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def own_file(self) -> Path:
        return self.home / "config" / "jackline" / "jackline.toml"

    @property
    def state(self) -> StateDir:
        return StateDir(self.home / "state" / "jackline")

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: text for name, text in os.environ.items() if "JACKLINE" not in name}
        home = {
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "XDG_STATE_HOME": str(self.home / "state"),
            "JACKLINE_PORT": str(self.port),
        }
        return {**kept, "TZ": "UTC", "PYTHONUTF8": "1", **home, **self.variables}

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def jackline(self, *words: str | Path, stdin: bytes = b"") -> Answer:
        return self.run([str(SCRIPT), *map(str, words)], stdin)

    def run(self, command: list[str], stdin: bytes = b"") -> Answer:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            input=stdin,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Clone]:
    cloned = Clone(tmp_path)
    yield cloned
    cloned.jackline("down")


def planted_modules(clone: Clone) -> Path:
    """Modules that leave a mark when anything imports them; the mark's path."""
    mark = clone.root / "imported"
    body = f"open({str(mark)!r}, 'a').write(__name__ + '\\n')\n"
    for name in SHADOWS:
        if name == "jackline":
            clone.write("jackline/__init__.py", body)
            clone.write("jackline/__main__.py", body)
        else:
            clone.write(f"{name}.py", body)
    return mark


def test_modules_in_the_repository_are_not_imported_by_the_service_that_is_started(
    clone: Clone,
) -> None:
    mark = planted_modules(clone)
    answer = clone.jackline("up", "-d")
    assert not mark.exists(), mark.read_text()
    assert answer.code == 0, answer.err
    clone.jackline("down")
    about = {"name": "x", "version": "1"}
    version = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about}
    calls = [("initialize", version), ("tools/call", {"name": "status", "arguments": {}})]
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        for number, (method, params) in enumerate(calls)
    ]
    clone.jackline("mcp", stdin="\n".join([*lines, ""]).encode())
    assert not mark.exists(), mark.read_text()
    assert clone.state.running() is not None


def test_python_dash_m_does_not_import_from_the_repository_once_it_found_jackline(
    clone: Clone,
) -> None:
    """A `jackline/` in the repository wins before our first line; what comes after does not."""
    mark = planted_modules(clone)
    (clone.folder / "jackline" / "__init__.py").unlink()
    (clone.folder / "jackline" / "__main__.py").unlink()
    answer = clone.run([sys.executable, "-m", "jackline", "config", "path"])
    assert not mark.exists(), mark.read_text()
    assert answer.code == 0, answer.err


@pytest.mark.skipif(os.name == "nt", reason="a shell script as the planted program")
def test_git_runs_no_program_that_an_unpacked_repository_names(clone: Clone) -> None:
    mark = clone.root / "ran"
    planted = clone.write("watch.sh", f"#!/bin/sh\ntouch '{mark}'\n")
    planted.chmod(0o755)
    clone.run(["git", "init", "--quiet", "."])
    clone.run(["git", "config", "core.fsmonitor", str(planted)])
    assert "watch.sh" in " ".join(asyncio.run(changed_files(clone.folder)))
    assert not mark.exists()
    bare = clone.folder / "inner"
    clone.run(["git", "init", "--quiet", "--bare", str(bare)])
    clone.run(["git", "-C", str(bare), "config", "core.bare", "false"])
    clone.run(["git", "-C", str(bare), "config", "core.worktree", str(clone.folder)])
    clone.run(["git", "-C", str(bare), "config", "core.fsmonitor", str(planted)])
    asyncio.run(changed_files(bare))
    assert not mark.exists()


def test_a_program_is_not_taken_from_the_working_folder(
    clone: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "planted-tool.exe" if os.name == "nt" else "planted-tool"
    clone.write(name, "#!/bin/sh\n").chmod(0o755)
    monkeypatch.chdir(clone.folder)
    monkeypatch.setenv("PATH", os.pathsep.join(["", ".", os.environ["PATH"]]))
    assert find_program("planted-tool") is None
    monkeypatch.setenv("PATH", str(clone.folder))
    assert find_program("planted-tool") == str(clone.folder / name)
