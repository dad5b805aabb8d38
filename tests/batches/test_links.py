"""No word of a command leads out of the folder by a link, however it is written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jackline.batches.links import way_out

pytestmark = pytest.mark.skipif(os.name == "nt", reason="links need a right of their own there")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s")
    project = tmp_path / "project"
    (project / "part").mkdir(parents=True)
    (project / "notes.txt").write_text("n")
    (project / "door").symlink_to(outside)
    (project / "part" / "twice").symlink_to(Path("..") / "door")
    (project / "file.txt").symlink_to(outside / "secret")
    (project / "round").symlink_to("round")
    (project / "within").symlink_to("part")
    return project


@pytest.mark.parametrize(
    "command",
    [
        "cat door/secret",
        "cat ./part/../door/secret",
        "cat part/twice/secret",
        "cat file.txt",
        "cat f*.txt",
        "cat d*/secret",
        "cat part/*/secret",
        "cat 'door/secret'",
        "cat --file=door/secret",
        "cat -fdoor/secret",
        "cat round",
        "touch door/made",
        "cat notes.txt | tee door/made",
    ],
)
def test_a_link_that_leads_out_is_found(command: str, project: Path) -> None:
    found = way_out(project, {"command": command})
    assert found is not None
    assert found in command.replace("'", "")


def test_the_folder_in_which_a_command_runs_counts(project: Path) -> None:
    assert way_out(project, {"command": "cat twice/secret", "cwd": "part"}) == "twice/secret"
    assert way_out(project, {"argv": ["cat", "door/secret"]}) == "door/secret"


@pytest.mark.parametrize(
    "command",
    ["cat notes.txt", "cat within/nothing", "cat n*", "git log main..HEAD", "cat 'd*'", "echo a:b"],
)
def test_what_stays_inside_is_left_alone(command: str, project: Path) -> None:
    assert way_out(project, {"command": command}) is None


def test_a_folder_that_is_itself_reached_by_a_link_is_the_folder(project: Path) -> None:
    reached = project.parent / "reached"
    reached.symlink_to(project)
    assert way_out(reached, {"command": f"cat {reached}/notes.txt"}) is None
    assert way_out(reached, {"command": f"cat {reached}/door/secret"}) is not None
