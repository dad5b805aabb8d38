"""Whether the owner of a run is dead is known of processes of this machine and namespace only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jackline.flows.run_owner import is_dead, new_owner, owner_in_words, process_here

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there, no process is asked for")


def ended_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def owner_with(process: int) -> str:
    return new_owner().replace(f":{os.getpid()}:", f":{process}:")


def test_an_owner_lives_while_its_process_does() -> None:
    assert process_here(new_owner()) == os.getpid()
    assert not is_dead(new_owner())
    assert is_dead(owner_with(ended_process()))


def test_nobody_can_tell_of_processes_elsewhere() -> None:
    """A container that shares the state folder and the host name has process ids of its own."""
    dead = owner_with(ended_process())
    host, _, rest = dead.partition(":")
    name, _, namespace = host.partition("/")
    elsewhere = [f"other:{rest}", f"{host}0:{rest}", f"{name}/7{namespace}:{rest}"]
    elsewhere += ["", "a:b", ":::"]
    assert not any(map(is_dead, elsewhere))
    assert {process_here(each) for each in elsewhere} == {None}


@pytest.mark.skipif(not os.path.exists("/proc/self/ns/pid"), reason="Linux only")  # noqa: PTH110
def test_another_namespace_is_another_place(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = owner_with(ended_process())
    monkeypatch.setattr(Path, "readlink", lambda _path: Path("pid:[4026530000]"))
    assert not is_dead(dead)
    assert new_owner().partition(":")[0].endswith("/4026530000")


def test_an_owner_is_shown_without_its_namespace() -> None:
    words = owner_in_words(new_owner())
    assert words.startswith(f"process {os.getpid()} on ")
    assert "/" not in words
    assert owner_in_words("laptop:12:abc") == "process 12 on laptop"
