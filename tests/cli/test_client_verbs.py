"""`exec` and `claude` start a client through the gateway and become it for their caller."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jackline.testing import SimulatedProvider
from tests import warm_processes
from tests.cli.gateways import PATIENCE, Place, until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and scripts of POSIX")

# Prints what it was started with, makes one model call if requested, and exits as requested.
FAKE_CLIENT = """\
#!{python}
import json, os, signal, sys, urllib.request
with open(os.environ["DUMP"], "w") as dump:
    json.dump({{"argv": sys.argv[1:], "env": dict(os.environ)}}, dump)
if os.environ.get("ASK"):
    body = {{"model": "claude-sonnet-4-6", "max_tokens": 9,
            "messages": [{{"role": "user", "content": "hi"}}]}}
    url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
    request = urllib.request.Request(url, json.dumps(body).encode(), {{"x-api-key": "k"}})
    print(json.load(urllib.request.urlopen(request))["type"])
if os.environ.get("SIGNAL"):
    os.kill(os.getpid(), int(os.environ["SIGNAL"]))
if os.environ.get("WAIT"):
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(43))
    signal.signal(signal.SIGINT, lambda number, frame: sys.exit(44))
    print("waiting", flush=True)
    signal.pause()
sys.exit(int(os.environ.get("CODE", "0")))
"""


@dataclass
class Started:
    """What the fake client saw."""

    argv: list[str]
    env: dict[str, str]


@dataclass
class Clients:
    """A gateway's place with a fake `claude` on the PATH."""

    place: Place

    def seen(self) -> Started:
        reported: dict[str, Any] = json.loads((self.place.folder / "dump.json").read_text())
        return Started(**reported)


@pytest.fixture
def provider() -> Iterator[SimulatedProvider]:
    with SimulatedProvider() as simulated:
        yield simulated


@pytest.fixture
def clients(tmp_path: Path, provider: SimulatedProvider) -> Iterator[Clients]:
    place = Place(tmp_path, provider.url)
    tools = tmp_path / "bin"
    tools.mkdir()
    fake = tools / "claude"
    fake.write_text(FAKE_CLIENT.format(python=sys.executable))
    fake.chmod(0o755)
    place.more["PATH"] = f"{tools}{os.pathsep}{os.environ['PATH']}"
    place.more["DUMP"] = str(tmp_path / "dump.json")
    yield Clients(place)
    place.ends()


ARGUMENTS = [
    "-p", "--", "--afk", "", "two words", "it's \"quoted\"", "$HOME *", "--help", "-h", "é—中",
    "--model=x", "--", "-", "\\n",
]  # fmt: skip


def test_claude_gets_its_arguments_as_they_are_and_a_gateway_that_was_not_there(
    clients: Clients, provider: SimulatedProvider
) -> None:
    clients.place.more |= {"ASK": "1", "CODE": "7"}
    answer = clients.place.jackline("claude", *ARGUMENTS)
    assert (answer.code, answer.out) == (7, "message\n")
    flag, plugin, *argv = clients.seen().argv
    assert argv == ARGUMENTS
    assert flag == "--plugin-dir"
    assert (Path(plugin) / ".claude-plugin" / "plugin.json").is_file()
    assert f"jackline: started a gateway at {clients.place.url}" in answer.err
    assert provider.ledger.useful == 1
    assert clients.place.answers(), "it goes on for the next client"
    # The next one uses it, and prints nothing.
    again = clients.place.jackline("claude")
    assert (again.code, again.err) == (7, "")


def test_the_client_gets_what_waiting_needs(clients: Clients) -> None:
    clients.place.more |= {"API_TIMEOUT_MS": "1234", "ANTHROPIC_API_KEY": "mine"}
    with clients.place.up():
        assert clients.place.jackline("claude", "--afk", "-p", "x").code == 0
        seen = clients.seen()
        assert seen.argv[2:] == ["-p", "x"]
        assert seen.env["ANTHROPIC_BASE_URL"] == clients.place.url
        assert seen.env["CLAUDE_ASYNC_AGENT_STALL_TIMEOUT_MS"] == "86400000"
        assert seen.env["ENABLE_TOOL_SEARCH"] == "true"
        assert seen.env["API_TIMEOUT_MS"] == "1234", "the user's own setting stays"
        assert seen.env["ANTHROPIC_API_KEY"] == "mine"
        assert seen.env["ANTHROPIC_CUSTOM_HEADERS"] == "x-jackline-hold: until-reset"


def test_exec_passes_any_command_on(clients: Clients) -> None:
    place = clients.place
    script = "import json, sys; print(json.dumps(sys.argv[1:])); sys.exit(3)"
    words = ["--", "", "a b", "--afk", "-h", "'\""]
    with place.up():
        answer = place.jackline("exec", "--", sys.executable, "-c", script, *words)
        assert (answer.code, json.loads(answer.out)) == (3, words)
        bare = place.jackline("exec", sys.executable, "-c", script, *words)
        assert (bare.code, json.loads(bare.out)) == (3, words)
        held = place.jackline("exec", "--afk", "--", "claude", "command")
        assert held.code == 0
        assert clients.seen().argv == ["command"]
        assert "until-reset" in clients.seen().env["ANTHROPIC_CUSTOM_HEADERS"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_client_that_a_signal_ended_gets_the_exit_code_that_shells_use(
    clients: Clients, number: signal.Signals
) -> None:
    clients.place.more["SIGNAL"] = str(int(number))
    with clients.place.up():
        assert clients.place.jackline("exec", "--", "claude").code == 128 + number


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 43), (signal.SIGINT, 44)])
def test_signals_are_the_clients_to_answer(
    clients: Clients, number: signal.Signals, code: int
) -> None:
    """The terminal sends Ctrl-C to all of its processes; whoever stops a job names one."""
    place = clients.place
    place.more["WAIT"] = "1"
    with place.up():
        process = warm_processes.Popen(
            [sys.executable, "-m", "jackline", "exec", "--", "claude"],
            env={**os.environ, **place.env},
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        with process.stdout:
            assert process.stdout.readline() == b"waiting\n"
            if number is signal.SIGINT:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
            assert process.wait(PATIENCE) == code


def test_a_client_that_is_not_installed_is_reported_with_what_to_do(clients: Clients) -> None:
    place = clients.place
    place.more["PATH"] = str(place.folder / "nowhere")
    claude = place.jackline("claude", "-p", "x")
    assert claude.code == 2
    assert "there is no program 'claude' on the PATH" in claude.err
    assert "npm install -g @anthropic-ai/claude-code" in claude.err
    other = place.jackline("exec", "--", "no-such-program")
    assert other.code == 2
    assert "no-such-program" in other.err
    nothing = place.jackline("exec", "--")
    assert (nothing.code, "there is no command to run" in nothing.err) == (2, True)
    assert not place.answers(), "no gateway is started for nothing"


@pytest.mark.parametrize("words", [("--help",), ("-h",), ("--afk", "--help")])
def test_claude_help_is_ours_and_starts_nothing(clients: Clients, words: tuple[str, ...]) -> None:
    answer = clients.place.jackline("claude", *words)
    assert answer.code == 0
    assert "--afk" in answer.out
    assert not (clients.place.folder / "dump.json").exists()
    assert not clients.place.answers()


@pytest.mark.parametrize("words", [("--version",), ("mcp", "list"), ("doctor",)])
def test_a_client_that_calls_no_model_starts_no_gateway(
    clients: Clients, words: tuple[str, ...]
) -> None:
    clients.place.more["CODE"] = "3"
    answer = clients.place.jackline("claude", *words)
    assert (answer.code, answer.err) == (3, "")
    assert clients.seen().argv == list(words)
    assert not clients.place.answers()


def test_a_gateway_that_cannot_start_is_reported_with_its_own_message(clients: Clients) -> None:
    place = clients.place
    other = Place(place.folder / "other", place.upstream, port=place.port)
    with other.up():
        answer = place.jackline("exec", "--", "claude")
        assert answer.code == 5
        assert f"port {place.port} is held by another Jackline gateway" in answer.err
        assert not (place.folder / "dump.json").exists()


def test_clients_that_start_at_once_share_one_gateway(
    clients: Clients, provider: SimulatedProvider
) -> None:
    place = clients.place
    place.more["ASK"] = "1"
    processes = [
        warm_processes.Popen(
            [sys.executable, "-m", "jackline", "exec", "--", "claude"],
            env={**os.environ, **place.env},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for _ in range(3)
    ]
    reported = [process.communicate(timeout=PATIENCE)[1].decode() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], reported
    until(lambda: provider.ledger.useful == 3, "three answers")
