"""Shell completion: verbs without loading them, and names that are there right now."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jackline import event_loop
from jackline.assembly import StateDir
from jackline.flows.records import RunRecord
from jackline.flows.store import open_run_store, run_store_url
from tests.cli.commands import jackline

ISOLATED = ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "APPDATA", "LOCALAPPDATA")


def offered(tmp_path: Path, *words: str, **variables: str) -> list[str]:
    """What the shell would offer for the last of these words."""
    environ = {name: str(tmp_path / "home") for name in ISOLATED}
    environ |= {"JACKLINE_STATE": str(tmp_path / "state"), "_JACKLINE_COMPLETE": "bash_complete"}
    environ |= {"COMP_WORDS": " ".join(["jackline", *words]), "COMP_CWORD": str(len(words))}
    done = jackline(env={**environ, **variables})
    assert done.err == ""
    return [line.partition(",")[2] for line in done.out.splitlines() if line]


def keep_runs(tmp_path: Path, *names: str) -> None:
    folder = StateDir(tmp_path / "state")
    folder.make()

    async def main() -> None:
        engine = open_run_store(run_store_url(folder.folder))
        for name in names:
            run = RunRecord(name, "many", "", b"{}")
            claim = await engine.create(run, owner="a test", lease=1.0)
            await engine.let_go(claim, run)
        await engine.close()

    event_loop.run(main())


def test_verbs_are_offered_by_their_beginning(tmp_path: Path) -> None:
    assert offered(tmp_path, "sta") == ["status", "statusline"]


def test_offering_verbs_loads_none_of_them() -> None:
    script = "import sys; from jackline.cli.main import jackline, click; "
    script += "jackline.shell_complete(click.Context(jackline), 's'); "
    script += "print([m for m in sys.modules if m.startswith('jackline.cli.')])"
    import subprocess  # noqa: PLC0415 -- a fresh interpreter is the point

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout.decode().strip() == "['jackline.cli.main']"


@pytest.mark.parametrize("verb", ["show", "logs", "cancel", "resume", "fork"])
def test_runs_are_offered_by_their_ids(tmp_path: Path, verb: str) -> None:
    keep_runs(tmp_path, "abc1", "abd2", "xyz3")
    assert sorted(offered(tmp_path, verb, "ab")) == ["abc1", "abd2"]


def test_without_runs_nothing_is_offered_and_nothing_is_made(tmp_path: Path) -> None:
    assert offered(tmp_path, "show", "") == []
    assert not (tmp_path / "state").exists()


def test_upstreams_and_drills_are_offered(tmp_path: Path) -> None:
    assert offered(tmp_path, "upstream", "use", "") == ["anthropic"]
    assert offered(tmp_path, "drill", "throttle") == ["throttle-storm"]


def test_a_configuration_that_cannot_be_read_offers_nothing_and_says_nothing(
    tmp_path: Path,
) -> None:
    file = tmp_path / "broken.toml"
    file.write_text("this is = = no TOML")
    assert offered(tmp_path, "upstream", "use", "", JACKLINE_CONFIG=str(file)) == []
