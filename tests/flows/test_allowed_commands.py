"""A clean-up command that a model has ordered runs where and as it was allowed, whoever runs it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from pathlib import Path

import pytest

from jackline.clock import SystemClock
from jackline.flows.cleanup.action_runner import denial
from jackline.flows.cleanup.ledger import Reaped, reap
from jackline.flows.records import (
    AllowedCommand,
    ResourceRecord,
    ResourceState,
    RunRecord,
    parse_allowed_command,
    render_allowed_command,
    shown_action,
)
from jackline.flows.store import open_run_store
from jackline.flows.store.run_store import Claim

EVERYTHING = ("sh *", "sh look.sh", "sh read.sh", "touch *")


def reaped(cwd: Path, releases: Sequence[str], allow: Sequence[str] = EVERYTHING) -> list[Reaped]:
    """What the next process does that looks after a run whose own has died."""

    async def main() -> list[Reaped]:
        clock = SystemClock()
        engine = open_run_store("sqlite:///:memory:", wall=clock.wall)
        await engine.create(RunRecord("r1", "f", "", b"{}", cwd=str(cwd)), owner="o", lease=-1.0)
        for number, release in enumerate(releases):
            name, over = f"i-{number}", clock.wall() - 1
            held = ResourceRecord("r1", name, "", release, False, over, ResourceState.HELD, over)
            await engine.save_resource(held)

        def take(run: RunRecord, lease: float) -> Awaitable[Claim | None]:
            return engine.claim(run.run_id, owner="me", lease=lease)

        return await reap(engine, clock, lambda _run: None, take, allow=lambda: allow)

    return asyncio.run(main())


def test_the_next_process_runs_it_in_its_folder_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED_API_KEY", "of-the-process")
    theirs, runs = tmp_path / "theirs", tmp_path / "runs"
    for folder in (theirs, runs):
        folder.mkdir()
        (folder / "look.sh").write_text("env > seen")
    [done] = reaped(runs, [render_allowed_command("sh look.sh", str(theirs), ("sh look.sh",))])
    assert done.trouble == ""
    assert not (runs / "seen").exists()
    assert "of-the-process" not in (theirs / "seen").read_text()


def test_a_command_of_the_users_own_flow_runs_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED_API_KEY", "of-the-process")
    [done] = reaped(tmp_path, ["env > seen"])
    assert done.trouble == ""
    assert "of-the-process" in (tmp_path / "seen").read_text()


def test_what_is_not_permitted_any_more_is_kept_and_says_why(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    outside.mkdir()
    inside.mkdir()
    (inside / "door").symlink_to(outside)
    (tmp_path / "linked").symlink_to(inside)
    gone = tmp_path / "gone"
    troubles = [
        done.trouble
        for done in reaped(
            tmp_path,
            [
                render_allowed_command("touch door/made", str(inside), ("touch *",)),
                render_allowed_command("touch made", str(tmp_path / "linked"), ("touch *",)),
                render_allowed_command("touch made", str(gone), ("touch *",)),
                # Ordered by an earlier version, which did not keep what had permitted it.
                render_allowed_command("touch made", str(inside), ()),
            ],
        )
    ]
    assert [trouble.startswith("not run: ") for trouble in troubles] == [True] * 4
    assert "by a link" in troubles[0]
    assert not list(tmp_path.rglob("made"))


def test_what_the_user_allows_no_more_is_not_run(tmp_path: Path) -> None:
    """It has failed once, and is tried again: by the patterns of now."""
    release = render_allowed_command("touch made", str(tmp_path), ("touch *",))
    for allow in ((), ("touch other",)):
        [done] = reaped(tmp_path, [release], allow)
        assert done.trouble.startswith("not run: ")
        assert not (tmp_path / "made").exists()
    # Nor what is allowed only since.
    [done] = reaped(tmp_path, [render_allowed_command("touch made", str(tmp_path), ())])
    assert done.trouble.startswith("not run: ")
    [done] = reaped(tmp_path, [release])
    assert (done.trouble, (tmp_path / "made").exists()) == ("", True)


def test_a_programs_name_is_no_such_command() -> None:
    assert parse_allowed_command("allowed by nobody") is None
    assert parse_allowed_command('allowed {"command": 1}') is None
    assert parse_allowed_command("allowed {") is None
    words = render_allowed_command("make down", "/a b", ("make *",))
    assert parse_allowed_command(words) == AllowedCommand("make down", "/a b", ("make *",))
    assert shown_action(words) == "make down   (in /a b)"
    assert shown_action("make down") == "make down"


def test_git_is_left_to_the_agent_itself(tmp_path: Path) -> None:
    # It would run later, without the guard under which git was judged.
    denied = asyncio.run(denial("git status", tmp_path, ["git status"]))
    assert denied is not None
    assert denied.why == "it starts git"
    assert asyncio.run(denial("touch done", tmp_path, ["touch *"])) is None
