"""Whatever lies in the place of a known source, comparing it ends soon and takes little memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="no pipes and limits as POSIX knows them")
PATIENCE = 60
LOOK = """
import hashlib, resource, sys
from pathlib import Path
from jackline.flows.flow_sources import first_changed
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
flow, helper = sys.argv[1:]
known = {flow: hashlib.sha256(Path(flow).read_bytes()).hexdigest(), helper: "0" * 64}
print(first_changed(known, flow))
"""
LOAD = """
import resource, sys
from pathlib import Path
from jackline.errors import JacklineError
from jackline.flows.flow_sources import SOURCES
from jackline.flows.authoring.flow_definition import load_module
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
flow, helper = sys.argv[1:]
SOURCES.only({flow: "0" * 64, helper: "0" * 64}, flow)
try:
    load_module(Path(flow))
except JacklineError as error:
    print(error.message)
"""


@pytest.fixture(autouse=True)
def nothing_large_stays(tmp_path: Path) -> Iterator[None]:
    """Whoever looks over what tests have written would read all of it."""
    yield
    for path in tmp_path.iterdir():
        if path.is_symlink() or path.is_file() or path.is_fifo():
            path.unlink()


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(8 << 30)  # sparse


def linked_elsewhere(path: Path) -> None:
    huge(path.with_suffix(".big"))
    path.symlink_to(path.with_suffix(".big"))


@pytest.mark.parametrize("put", [endless, os.mkfifo, huge, linked_elsewhere, Path.mkdir])
def test_looking_early_ends_and_says_that_it_has_changed(
    tmp_path: Path, put: Callable[[Path], None]
) -> None:
    (tmp_path / "flow.py").write_text("x = 1\n")
    put(tmp_path / "helper.py")
    assert _said(LOOK, tmp_path) == "helper.py has changed since you started this run"


def test_a_flow_that_is_too_large_is_not_read_when_it_is_to_run(tmp_path: Path) -> None:
    huge(tmp_path / "flow.py")
    assert _said(LOAD, tmp_path) == "flow.py has changed since you started this run"


def test_a_module_that_is_too_large_is_not_read_when_it_is_to_run(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text("import helper\n")
    huge(tmp_path / "helper.py")
    script = LOAD.replace('flow: "0" * 64', f"flow: {_digest(tmp_path / 'flow.py')!r}")
    assert _said(script, tmp_path) == "helper.py has changed since you started this run"


def test_a_person_is_told_that_a_source_is_too_large(tmp_path: Path) -> None:
    huge(tmp_path / "flow.py")
    script = LOAD.replace('SOURCES.only({flow: "0" * 64, helper: "0" * 64}, flow)\n', "")
    assert "only" not in script
    said = _said(script, tmp_path)
    assert "flow.py cannot be loaded: " in said
    assert "larger than" in said


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def _said(script: str, folder: Path) -> str:
    real = folder.resolve()
    done = subprocess.run(
        [sys.executable, "-c", script, str(real / "flow.py"), str(real / "helper.py")],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-500:]
    return done.stdout.strip()
