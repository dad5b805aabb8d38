"""A changed file is taken over while running; a faulty one changes nothing and is told once."""

from __future__ import annotations

import asyncio
import contextlib
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jackline import event_loop
from jackline.clock import VirtualClock
from jackline.config import Config
from jackline.config.watcher import ConfigWatcher, Reloaded
from jackline.errors import BadConfigError
from tests.config.places import Machine


class Watched:
    """A watcher over a machine's files, and what it said."""

    def __init__(self, machine: Machine, **variables: str) -> None:
        self.clock = VirtualClock(datetime(2026, 11, 15, tzinfo=UTC))
        self.changes: list[Reloaded] = []
        self.faults: list[BadConfigError] = []
        self.told = asyncio.Event()
        self.reloads = 0
        self.trouble: Exception | None = None
        self._machine = machine
        self._variables = variables
        self.watcher = ConfigWatcher(
            machine.load(environ=variables),
            self._reload,
            changed=self._changed,
            failed=self.faults.append,
            clock=self.clock,
        )

    def look(self, times: int = 2) -> None:
        async def look() -> None:
            for _ in range(times):
                await self.watcher.look()

        event_loop.run(look())

    def _changed(self, change: Reloaded) -> None:
        self.changes.append(change)
        self.told.set()

    def _reload(self) -> Config:
        self.reloads += 1
        if self.trouble is not None:
            raise self.trouble
        return self._machine.load(environ=self._variables)


def rewrite(path: Path, text: str) -> None:
    """Write a file so that its time differs even where the clock of the disk is coarse."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(before + 10**9, before + 10**9))


def test_nothing_is_read_while_nothing_changes(machine: Machine) -> None:
    machine.write_own("[hold]\nquota = 1\n")
    watched = Watched(machine)
    watched.look(30)
    assert (watched.reloads, watched.changes) == (0, [])


def test_a_changed_file_is_taken_over_and_its_keys_are_told(machine: Machine) -> None:
    path = machine.write_own("[hold]\nquota = 1\n")
    watched = Watched(machine)
    rewrite(path, "[hold]\nquota = 2\n[caps]\nsession = 3\n")
    watched.look()
    (change,) = watched.changes
    assert change.changed == ("caps.session", "hold.quota")
    assert change.needs_restart == ()
    assert change.config.gateway.hold.quota == 2
    assert watched.watcher.config is change.config
    assert str(change) == "changed: caps.session, hold.quota"
    watched.look(5)
    assert watched.reloads == 1


def test_a_file_is_read_only_when_it_has_kept_still_for_a_look(machine: Machine) -> None:
    path = machine.write_own("[hold]\nquota = 1\n")
    watched = Watched(machine)
    for text in ("", "[hold]\n", "[hold]\nquota = 3\n"):
        rewrite(path, text)
        watched.look(1)
    assert watched.reloads == 0
    watched.look(1)
    assert [change.config.gateway.hold.quota for change in watched.changes] == [3]


@pytest.mark.parametrize("name", ["jackline.toml", "pyproject.toml", "../jackline.toml"])
def test_a_file_that_comes_and_goes_is_noticed(machine: Machine, name: str) -> None:
    watched = Watched(machine)
    text = "[tool.jackline.hold]\nquota=5\n" if "py" in name else "[hold]\nquota=5\n"
    path = machine.write(text, name)
    watched.look()
    path.unlink()
    watched.look()
    assert [change.config.gateway.hold.quota for change in watched.changes] == [5, 900]


def test_an_agreement_is_taken_over_and_ends_with_the_content_it_was_for(machine: Machine) -> None:
    path = machine.write('[[upstream]]\nname = "team"\nurl = "http://127.0.0.1:9"\n')
    watched = Watched(machine)
    assert watched.watcher.config.gateway.upstream.name == "anthropic"
    machine.trust(path)
    watched.look()
    assert watched.watcher.config.gateway.upstream.name == "team"
    rewrite(path, '[[upstream]]\nname = "team"\nurl = "http://127.0.0.1:8"\n')
    watched.look()
    assert watched.watcher.config.gateway.upstream.name == "anthropic"
    assert "changed since you agreed" in watched.watcher.config.warnings[0]


def test_a_faulty_file_changes_nothing_and_is_told_once(machine: Machine) -> None:
    path = machine.write_own("[hold]\nquota = 1\n")
    watched = Watched(machine)
    rewrite(path, "[hold]\nquota = 'x'\n")
    watched.look(40)
    (fault,) = watched.faults
    assert "hold.quota" in fault.message
    assert watched.changes == []
    assert watched.watcher.config.gateway.hold.quota == 1
    rewrite(path, "[hold]\nquota = 'x'  # still\n")
    watched.look()
    assert len(watched.faults) == 1
    rewrite(path, "[hold]\nquota = 1\n[caps]\nagent = 2\n")
    watched.look()
    assert [change.changed for change in watched.changes] == [("caps.agent",)]
    rewrite(path, "[hold]\nquota = 'x'\n")
    watched.look()
    assert len(watched.faults) == 2


def test_a_fault_that_is_cured_outside_the_files_is_noticed(machine: Machine) -> None:
    path = machine.write_own("")
    watched = Watched(machine)
    rewrite(path, "[listen]\ntoken = 'file:token'\n")
    watched.look()
    assert "token cannot be read" in watched.faults[0].message
    machine.write_own("a-made-up-token", "token").chmod(0o600)
    watched.look(10)
    assert [change.changed for change in watched.changes] == [("listen.token",)]


def test_a_disk_in_trouble_is_told_once_and_does_not_end_the_watch(machine: Machine) -> None:
    path = machine.write_own("")
    watched = Watched(machine)
    watched.trouble = FileNotFoundError(2, "No such file or directory")
    rewrite(path, "[hold]\nother = 9\n")
    watched.look(30)
    assert [fault.message for fault in watched.faults] == [
        "the configuration cannot be read: No such file or directory"
    ]
    watched.trouble = None
    watched.look(10)
    assert [change.changed for change in watched.changes] == [("hold.other",)]


def test_where_it_listens_and_keeps_its_state_stays_until_a_restart(machine: Machine) -> None:
    path = machine.write_own("")
    watched = Watched(machine)
    rewrite(path, "state = 'else'\n[listen]\nport = 1\nhost = 'localhost'\n[hold]\nother = 9\n")
    watched.look()
    (change,) = watched.changes
    assert change.needs_restart == ("listen.host", "listen.port", "state")
    listen = change.config.gateway.listen
    assert (listen.host, listen.port) == ("127.0.0.1", 8766)
    assert change.config.state_dir == machine.folders.state
    assert change.config.gateway.hold.other == 9
    assert str(change) == ("changed: hold.other; needs a restart: listen.host, listen.port, state")


def test_a_new_secret_behind_the_same_reference_is_taken_over(machine: Machine) -> None:
    kept = machine.write_own("first-made-up", "token")
    kept.chmod(0o600)
    machine.write_own("[listen]\ntoken = 'file:token'\n")
    watched = Watched(machine)
    rewrite(kept, "second-made-up")
    watched.look()
    (change,) = watched.changes
    assert change.changed == ("listen.token",)
    assert change.config.gateway.listen.token == "second-made-up"  # noqa: S105 -- made up
    assert "made-up" not in f"{change!r} {change}"


def test_a_new_secret_of_any_upstream_is_told_by_its_key(machine: Machine) -> None:
    kept = machine.write_own("first-made-up", "key")
    kept.chmod(0o600)
    machine.write_own(
        "[[upstream]]\n[[upstream]]\nname = 'b'\nurl = 'http://127.0.0.1:1'\n"
        "credential = 'file:key'\nheaders = { x-key = 'file:key' }\n"
    )
    watched = Watched(machine)
    rewrite(kept, "second-made-up")
    watched.look()
    (change,) = watched.changes
    assert change.changed == ("upstream[1].credential", "upstream[1].headers")
    assert change.config.gateway.upstreams[1].secret == "second-made-up"  # noqa: S105 -- made up
    assert "made-up" not in f"{change!r} {change}"


def test_it_looks_once_a_second_of_the_clock_it_was_given(machine: Machine) -> None:
    path = machine.write_own("[hold]\nquota = 1\n")
    watched = Watched(machine)

    async def scene() -> None:
        running = asyncio.create_task(watched.watcher.run())
        rewrite(path, "[hold]\nquota = 2\n")
        await watched.clock.advance(1.5)
        assert watched.reloads == 0
        await watched.clock.advance(1.0)
        async with asyncio.timeout(120):  # only ends a test that has failed
            await watched.told.wait()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    event_loop.run(scene())
    assert watched.reloads == 1


def test_a_bug_while_reloading_does_not_end_the_watch(machine: Machine) -> None:
    """What the user takes back afterwards must have an effect."""
    own = machine.write_own("[hold]\nquota = 1\n")
    watched = Watched(machine)
    watched.trouble = ZeroDivisionError("planted")
    rewrite(own, "[hold]\nquota = 2\n")
    watched.look()
    assert [fault.message for fault in watched.faults] == ["a bug in Jackline: ZeroDivisionError"]
    watched.trouble = None
    rewrite(own, "[hold]\nquota = 3\n")
    watched.look()
    assert [change.config.gateway.hold.quota for change in watched.changes] == [3.0]


def test_who_keeps_touching_a_project_file_holds_up_no_change_of_the_users_own(
    machine: Machine,
) -> None:
    own = machine.write_own("[hold]\nquota = 1\n")
    projects = machine.write("[hold]\nother = 7\n")
    watched = Watched(machine)
    rewrite(own, "[hold]\nquota = 2\n")
    for number in range(4):
        rewrite(projects, f"[hold]\nother = {number + 10}\n")
        watched.look(1)
    (change,) = watched.changes
    assert "hold.quota" in change.changed
    # It is read again once it keeps still.
    watched.look()
    assert watched.watcher.config.gateway.hold.other == 13


def test_a_project_file_that_is_half_written_then_is_ignored_and_stops_nothing(
    machine: Machine,
) -> None:
    own = machine.write_own("[hold]\nquota = 1\n")
    projects = machine.write("[hold]\nother = 7\n")
    watched = Watched(machine)
    rewrite(own, "[hold]\nquota = 2\n")
    for number in range(3):
        rewrite(projects, "[hold" + "\n" * number)
        watched.look(1)
    assert watched.watcher.config.gateway.hold.quota == 2
    assert watched.faults == []


def test_the_users_own_file_is_not_read_while_it_is_being_written(machine: Machine) -> None:
    own = machine.write_own("[hold]\nquota = 1\n")
    watched = Watched(machine)
    for number in range(4):
        rewrite(own, f"[hold]\nquota = {number + 2}\n")
        watched.look(1)
        assert watched.reloads == 0
    watched.look()
    assert watched.watcher.config.gateway.hold.quota == 5
