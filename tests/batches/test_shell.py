"""Laws of commands: own group, own time, no secrets, nothing left behind. Real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jackline import event_loop
from jackline.batches.batch import run_batch
from jackline.batches.processes import _SCRIPT, is_secret, without_secrets
from jackline.batches.shell import ShellTool
from jackline.batches.tool import BatchCall, BatchReport, ClippedOutput, JsonObject, ToolContext
from jackline.clock import VirtualClock
from tests.batches.scripted_tools import gone, is_alive, written

posix = pytest.mark.skipif(os.name == "nt", reason="POSIX signals and shells")


def shell(folder: Path, *commands: str, tool: ShellTool | None = None) -> BatchReport:
    calls = [
        BatchCall(str(number), tool or ShellTool(), {"command": command})
        for number, command in enumerate(commands)
    ]
    return event_loop.run(run_batch(calls, context=ToolContext(folder)))


def python(folder: Path, program: str, tool: ShellTool | None = None) -> BatchReport:
    call = BatchCall("0", tool or ShellTool(), {"argv": [sys.executable, "-c", program]})
    return event_loop.run(run_batch([call], context=ToolContext(folder)))


def test_argv_is_passed_on_as_it_is_and_no_shell_reads_it(tmp_path: Path) -> None:
    words = ["$HOME", "a b", "*", "; echo no", "ü"]
    argv = [sys.executable, "-c", "import sys; print(ascii(sys.argv[1:]))", *words]
    call = BatchCall("0", ShellTool(), {"argv": argv})
    report = event_loop.run(run_batch([call], context=ToolContext(tmp_path)))
    assert report["0"].text.strip() == ascii(words)


async def timed_out_once_written(folder: Path, calls: list[BatchCall]) -> BatchReport:
    """The report of a batch whose time is over as soon as a program has written `pids`."""
    clock = VirtualClock(datetime(2026, 1, 1, tzinfo=UTC))
    batch = asyncio.ensure_future(run_batch(calls, context=ToolContext(folder), clock=clock))
    await written(folder / "pids")
    await clock.advance(60)
    return await batch


@posix
def test_a_timeout_ends_only_that_call_with_its_whole_tree(tmp_path: Path) -> None:
    async def main() -> None:
        tree = "sleep 300 & (sleep 300 & echo $! $$ > pids; wait); wait"
        calls = [
            BatchCall("tree", ShellTool(), {"command": tree}, timeout=60),
            BatchCall(
                "other", ShellTool(), {"command": "until [ -e go ]; do sleep 0.05; done; ls"}
            ),
        ]
        batch = asyncio.ensure_future(timed_out_once_written(tmp_path, calls))
        for process in (await written(tmp_path / "pids")).split():
            assert await gone(int(process))
        (tmp_path / "go").touch()
        report = await batch
        assert report["tree"].error == "timed out after 60 s"
        assert report["other"].text == "go\npids\n"

    event_loop.run(main())


@posix
def test_a_program_that_ignores_sigterm_is_ended_all_the_same(tmp_path: Path) -> None:
    async def main() -> None:
        deaf: JsonObject = {
            "command": "trap '' TERM; echo so far; echo $$ > pids; while :; do sleep 300; done"
        }
        calls = [BatchCall("deaf", ShellTool(), deaf, timeout=60)]
        report = await timed_out_once_written(tmp_path, calls)
        assert (report["deaf"].ended_by, report["deaf"].text) == ("timed out", "so far\n")
        assert await gone(int(await written(tmp_path / "pids")))

    event_loop.run(main())


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="only Linux shows environments")
def test_a_timeout_also_ends_a_child_that_left_the_process_group(tmp_path: Path) -> None:
    program = (
        "import subprocess, time, pathlib;"
        "p = subprocess.Popen(['sleep', '300'], start_new_session=True);"
        "pathlib.Path('pids').write_text(f'{p.pid}\\n'); time.sleep(300)"
    )

    async def main() -> None:
        argv: JsonObject = {"argv": [sys.executable, "-c", program]}
        await timed_out_once_written(tmp_path, [BatchCall("0", ShellTool(), argv, timeout=60)])
        assert await gone(int(await written(tmp_path / "pids")))

    event_loop.run(main())


def test_the_shells_own_time_limit_says_how_to_ask_for_more(tmp_path: Path) -> None:
    report = python(tmp_path, "import time; time.sleep(300)", ShellTool(seconds=0.2))
    assert report["0"].error == "timed out after 0.2 s and was ended; ask for more with `timeout`"
    assert report["0"].ended_by == "timed out"


@posix
@pytest.mark.parametrize("away", ["", ">/dev/null 2>&1"])
def test_what_is_left_in_the_background_neither_holds_up_the_call_nor_outlives_it(
    tmp_path: Path, away: str
) -> None:
    report = shell(tmp_path, f"sleep 300 {away} & echo $!")
    assert report.ok
    assert event_loop.run(gone(int(report["0"].text.split()[0])))
    assert ("was ended" in report["0"].text) == (not away)


@posix
def test_cancelling_the_batch_leaves_no_process_behind(tmp_path: Path) -> None:
    async def main() -> None:
        calls = [
            BatchCall(str(n), ShellTool(), {"command": f"trap '' TERM; echo $$ > {n}; sleep 300"})
            for n in range(3)
        ]
        batch = asyncio.ensure_future(run_batch(calls, context=ToolContext(tmp_path)))
        processes = [int(await written(tmp_path / str(n))) for n in range(3)]
        batch.cancel()
        await asyncio.sleep(0)
        batch.cancel()  # an impatient caller must not leave anything behind either
        with pytest.raises(asyncio.CancelledError):
            await batch
        for process in processes:
            assert await gone(process)

    event_loop.run(main())


PARENT = """
import asyncio, sys
from pathlib import Path
from jackline.batches.api import batch
asyncio.run(batch(["trap '' TERM HUP; echo $$ > pid; sleep 300", "sleep 300"], cwd=sys.argv[1]))
"""


@posix
def test_killing_the_parent_ends_its_commands(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)]) as parent:
        command = int(event_loop.run(written(tmp_path / "pid")))
        assert is_alive(command)
        parent.send_signal(signal.SIGKILL)
    assert event_loop.run(gone(command))


def test_a_hundred_megabytes_are_read_to_the_end_and_kept_at_both_ends(tmp_path: Path) -> None:
    program = (
        "import sys; w = sys.stdout.write; w('first\\n');"
        "[w('x' * 999_999 + '\\n') for _ in range(100)]; w('last\\n')"
    )
    text = python(tmp_path, program)["0"].text
    assert text.startswith("first\nxxx")
    assert text.endswith("xxx\nlast\n")
    assert "characters left out" in text
    assert len(text) < 31_000


def test_binary_output_is_described_and_bad_text_is_made_valid(tmp_path: Path) -> None:
    write = "import sys; sys.stdout.buffer.write({})"
    binary = python(tmp_path, write.format("bytes(range(256)) * 10"))
    assert binary["0"].text == "(binary output, 2,560 bytes, not shown)"
    broken = python(tmp_path, write.format("b'a\\xff\\xe2\\x82'"))
    assert broken["0"].text == "a\ufffd\ufffd"


@posix
def test_exit_codes_and_signals_are_told(tmp_path: Path) -> None:
    report = shell(tmp_path, "echo before; exit 7", "kill -9 $$", "true")
    assert [result.ended_by for result in report] == ["exit 7", "ended by SIGKILL", ""]
    assert report["0"].text == "before\n"
    assert [result.exit_code for result in report] == [7, -9, 0]


def test_a_program_that_does_not_exist_is_a_failure_of_that_call(tmp_path: Path) -> None:
    call = BatchCall("0", ShellTool(), {"argv": ["no-such-program"]})
    report = event_loop.run(run_batch([call], context=ToolContext(tmp_path)))
    assert report["0"].error == "'no-such-program' cannot be started: No such file or directory"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "give either `command` or `argv`"),
        ({"command": "ls", "argv": ["ls"]}, "give either `command` or `argv`"),
        ({"argv": []}, "a command needs a program"),
        ({"command": "  "}, "a command needs a program"),
        ({"command": "a\0b"}, "cannot hold a NUL character"),
        ({"command": "ls", "timeout": -1}, "`timeout`"),
        ({"cmd": "ls"}, "`cmd` is not known"),
        ({"command": "ls", "cwd": ".."}, "outside the working folder"),
        ({"command": "ls", "cwd": "nowhere"}, "there is no folder 'nowhere'"),
    ],
)
def test_arguments_that_do_not_fit_are_told_clearly(
    tmp_path: Path, arguments: JsonObject, says: str
) -> None:
    call = BatchCall("0", ShellTool(), arguments)
    report = event_loop.run(run_batch([call], context=ToolContext(tmp_path)))
    assert says in (report["0"].error or "")


def test_secrets_do_not_reach_commands_unless_kept_by_name(tmp_path: Path) -> None:
    environ = {
        **os.environ,
        "ANTHROPIC_API_KEY": "k1",
        "GITHUB_TOKEN": "k2",
        "MY_DB_URL": "postgres://me:k3@host/db",
        "PLAIN": "seen",
        "KEPT_TOKEN": "k4",
    }
    tool = ShellTool(environ=environ, keep=["KEPT_TOKEN"])
    show = "import os; print(sorted(v for v in os.environ.values() if v in 'k1k2k4seen'))"
    text = python(tmp_path, show + "; print(os.environ.get('MY_DB_URL'))", tool)["0"].text
    assert "'k4'" in text
    assert "'seen'" in text
    assert "'k1'" not in text
    assert "'k2'" not in text
    assert text.splitlines()[-1] == "None"


@pytest.mark.parametrize(
    "name",
    [
        "ANTHROPIC_API_KEY",
        "OPENAI_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "AWS_SESSION_TOKEN",
        "GH_TOKEN",
        "NPM_TOKEN",
        "DB_PASSWORD",
        "PGPASSWORD",
        "MYSQL_PWD",
        "GITHUB_PAT",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "SENTRY_DSN",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_CUSTOM_HEADERS",
        "client_secret",
        "SSH_KEY",
        "TOKEN",
        "SECRET_KEY_BASE",
    ],
)
def test_names_that_sound_secret_are_dropped(name: str) -> None:
    assert is_secret(name, "x")


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "HOME",
        "PWD",
        "OLDPWD",
        "LANG",
        "SSH_AUTH_SOCK",
        "VIRTUAL_ENV",
        "KEYBOARD_LAYOUT",
        "MONKEY",
        "PASSAGE",
        "ANTHROPIC_BASE_URL",
        "XDG_RUNTIME_DIR",
        "AUTHOR",
    ],
)
def test_ordinary_names_pass(name: str) -> None:
    assert not is_secret(name, "/some/where")
    assert without_secrets({name: "/some/where"})[name] == "/some/where"


def test_kept_output_is_whole_when_it_fits_and_counts_what_it_leaves_out() -> None:
    kept = ClippedOutput(10)
    for sign in "abcdefghij":
        kept.add(sign)
    assert kept.text == "abcdefghij"
    kept.add("klm")
    assert kept.text == "abcde\n… (3 characters left out) …\nijklm"
    kept.add("0" * 1_000 + "vwxyz")
    assert kept.text == "abcde\n… (1,008 characters left out) …\nvwxyz"


@posix
def test_silence_where_a_command_usually_prints_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    report = shell(tmp_path, "ls empty", "grep -q x /dev/null || true", "ls empty > out", "true")
    assert [result.ran_again for result in report] == [True, False, False, False]
    assert "came back empty twice" in report["0"].for_model
    assert report.ok


@posix
def test_a_command_that_is_empty_at_first_is_heard_the_second_time(tmp_path: Path) -> None:
    flaky = tmp_path / "bin" / "ls"
    flaky.parent.mkdir()
    flaky.write_text("#!/bin/sh\nif [ -e seen ]; then echo there it is; else : > seen; fi\n")
    flaky.chmod(0o755)
    tool = ShellTool(environ={"PATH": f"{flaky.parent}:{os.environ['PATH']}"})
    result = shell(tmp_path, "ls", tool=tool)["0"]
    assert (result.text, result.ran_again) == ("there it is\n", True)
    assert result.empty_noticed.startswith("was empty at first")


PARENT_WITHOUT_GUARD = """
import asyncio, os, sys
from jackline.batches.api import batch
from jackline.batches.processes import guard

async def main():
    unmarked = "echo $$ > before; exec env -i sleep 300"
    before = asyncio.ensure_future(batch([unmarked], cwd=sys.argv[1]))
    while not os.path.exists(sys.argv[1] + "/before"):
        await asyncio.sleep(0.01)
    guard._guard.kill()
    guard._guard.wait()
    await batch(["echo $$ > pid; sleep 300"], cwd=sys.argv[1])

asyncio.run(main())
"""


@posix
def test_a_guard_that_was_killed_is_replaced_with_the_next_command(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", PARENT_WITHOUT_GUARD, str(tmp_path)]
    with subprocess.Popen(argv) as parent:
        commands = [int(event_loop.run(written(tmp_path / name))) for name in ("before", "pid")]
        parent.kill()
    assert [event_loop.run(gone(command)) for command in commands] == [True, True]


@posix
def test_the_guards_list_holds_what_was_added_and_not_forgotten() -> None:
    told = "+ 999999991\n+ 999999992\n+ 999999993\n- 999999992\n" + "- 5\n" * 16
    argv = ["/bin/sh", "-c", f'{_SCRIPT}\necho "$groups"', "sh", "a mark that nobody carries"]
    done = subprocess.run(argv, input=told, capture_output=True, text=True, check=True)
    assert done.stdout == " 999999991 999999993 \n"
