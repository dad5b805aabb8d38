"""Hooks of the plugin on the real clients: the truth for parents, news of ends, and silence.

A sub-agent that died of an API error is reported to its parent as what it is; a session that a wall
ended is known, though its client shut down; a service that is down costs nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from jackline.assembly import StateDir
from jackline.clients.plugin import HttpHook, marketplace_files
from jackline.hooks.hook_input import HEADER, PATH, hook_token
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.reply_script import Fail, Reply, ReplyScript, Rule, Say
from jackline.states import RunState
from jackline.testing import SimulatedProvider
from tests import warm_processes
from tests.claude_turns import fan_out
from tests.real_clients.clients import PATIENCE, claude_binary, environment
from tests.real_clients.old_client import old_claude_binary
from tests.saved_runs import saved_runs

pytestmark = pytest.mark.real_client
BINARIES = {"2.1.325": claude_binary, "2.1.197": old_claude_binary}
OWN = (sys.executable, "-m", "jackline")
RESETS_IN = 7200


def written_plugin(folder: Path, http: HttpHook | None = None) -> Path:
    for path, text in marketplace_files(OWN, http).items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder / "plugin"


def wall(resets_in: int = RESETS_IN) -> Fail:
    """What a subscriber is told whose five hours are used up."""
    unified = "anthropic-ratelimit-unified"
    headers = {
        f"{unified}-status": "rejected",
        f"{unified}-reset": str(int(time.time()) + resets_in),
        f"{unified}-representative-claim": "five_hour",
        "retry-after": str(resets_in),
    }
    words = "This request would exceed your account's rate limit."
    return Fail(429, "rate_limit_error", words, headers)


@dataclass(frozen=True)
class Place:
    """A home, a project, and a service that a test has started."""

    folder: Path
    url: str

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def service(self) -> dict[str, str]:
        return {**os.environ, "JACKLINE_STATE": str(self.state)}

    def jackline(self, *words: str) -> str:
        """What a command of ours prints."""
        done = warm_processes.run(
            [*OWN, *words], env=self.service, check=True, capture_output=True, text=True
        )
        return str(done.stdout)

    def parked(self) -> list[dict[str, str]]:
        """The runs that wait; none, too, where nothing was ever kept."""
        if not (self.state / "flows.db").exists():
            return []
        return list(json.loads(self.jackline("ls", "--parked", "--json"))["runs"])

    def claude(
        self, binary: Path, prompt: str, plugin: Path, *options: str, url: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A session of the client, from its prompt to its end."""
        surroundings = environment(self.folder / "home", url or self.url, subscription=True)
        return subprocess.run(
            [
                *(str(binary), "-p", prompt, "--output-format", "stream-json", "--verbose"),
                *("--allowedTools", "Bash,Agent,mcp__plugin_jackline_jackline"),
                *("--plugin-dir", str(plugin), *options),
            ],
            cwd=self.folder / "project",
            env={**surroundings, "JACKLINE_STATE": str(self.state)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
            text=True,
        )


@contextmanager
def service(
    folder: Path, rules: Sequence[Rule], config: str = "", claude: Path | None = None
) -> Iterator[Place]:
    """A provider that answers by these rules, and a service in front of it.

    With `claude` the service can start that client itself, in the same home.
    """
    for name in ("home", "project", "bin"):
        (folder / name).mkdir()
    own: dict[str, str] = {}
    if claude is not None:
        (folder / "bin" / "claude").symlink_to(claude)
        own = dict(environment(folder / "home", "http://127.0.0.1:1", subscription=True))
        own["PATH"] = f"{folder / 'bin'}{os.pathsep}{own['PATH']}"
    (folder / "jackline.toml").write_text(f'[hold]\nquota = "0.1s"\n{config}')
    with SimulatedProvider(script=ReplyScript(tuple(rules))) as provider:
        start = {
            **os.environ,
            **own,
            "JACKLINE_STATE": str(folder / "state"),
            "JACKLINE_CONFIG": str(folder / "jackline.toml"),
            "JACKLINE_PORT": "0",
            "JACKLINE_UPSTREAM": provider.url,
        }
        warm_processes.run([*OWN, "up", "-d"], env=start, check=True, capture_output=True)
        try:
            running = StateDir(folder / "state").running()
            assert running is not None
            yield Place(folder, running.url)
        finally:
            warm_processes.run([*OWN, "down"], env=start, check=False, capture_output=True)


class Listener:
    """Keeps what the main thread is told, and answers it."""

    def __init__(self) -> None:
        self.received: list[str] = []

    def __call__(self, asked: ClientRequest) -> Reply:
        self.received.append(json.dumps(asked.body.get("messages"), ensure_ascii=False))
        return Say("All parts are back.")


FAULTY = Fail(400, "invalid_request_error", "messages: text content blocks must be non-empty")
LOOK = ("Bash", {"command": "echo looked", "description": "look"})
each_version = pytest.mark.parametrize("binary", BINARIES.values(), ids=BINARIES)


def one_of_two_dies(of: Fail, listener: Listener, *, background: bool = False) -> list[Rule]:
    return [
        Rule(fan_out(["PART-0", "PART-1"], background=background), sub_agent=False, turn=0),
        Rule(Say("Looking.", (LOOK,)), sub_agent=True, prompt="PART-0", turn=0),
        Rule(of, sub_agent=True, prompt="PART-0"),
        Rule(Say("Part one is fine."), sub_agent=True),
        Rule(listener),
    ]


@each_version
def test_a_parent_is_told_that_its_sub_agent_died_and_how_to_go_on(
    binary: Callable[[], Path], tmp_path: Path
) -> None:
    listener = Listener()
    with service(tmp_path, one_of_two_dies(FAULTY, listener)) as place:
        plugin = written_plugin(tmp_path / "market")
        done = place.claude(binary(), "TASK: look at all parts", plugin)
    assert done.returncode == 0, done.stderr
    told = listener.received[-1]
    assert "did not finish: terminated_by refused" in told
    assert "had finished 1 turns with 1 tool calls" in told
    assert "continue_from_task_id=" in told
    assert told.count("did not finish") == 1 or binary is old_claude_binary
    assert "Part one is fine." in "".join(listener.received)


@each_version
@pytest.mark.parametrize("background", [False, True], ids=["foreground", "background"])
def test_the_gateways_own_knowledge_is_enough_when_the_client_writes_and_tells_nothing(
    binary: Callable[[], Path], background: bool, tmp_path: Path
) -> None:
    """The client's transcript and its hook of the death may come late: here they never come."""
    listener = Listener()
    with service(tmp_path, one_of_two_dies(FAULTY, listener, background=background)) as place:
        plugin = written_plugin(tmp_path / "market")
        file = plugin / "hooks" / "hooks.json"
        hooks = json.loads(file.read_text())
        del hooks["hooks"]["StopFailure"]
        file.write_text(json.dumps(hooks))
        done = place.claude(binary(), "TASK: look at all parts", plugin, "--no-session-persistence")
    assert done.returncode == 0, done.stderr
    told = "".join(listener.received)
    assert "did not finish: terminated_by refused" in told
    assert "continue_from_task_id=" in told


@each_version
@pytest.mark.parametrize("by", ["gateway", "http hook"])
def test_a_session_that_a_wall_ended_is_planned_though_its_client_shut_down(
    binary: Callable[[], Path], by: str, tmp_path: Path
) -> None:
    """A newer client ends before its hook has run; the gateway, or an HTTP hook, knows in time."""
    consent = "[resume]\nsessions = true\n"
    with service(tmp_path, [Rule(wall())], consent) as place:
        through_gateway = by == "gateway"
        http = HttpHook(place.url + PATH, HEADER, hook_token(StateDir(place.state).salt()))
        plugin = written_plugin(tmp_path / "market", None if through_gateway else http)
        if through_gateway:
            done = place.claude(binary(), "TASK: go", plugin)
        else:
            with SimulatedProvider(script=ReplyScript((Rule(wall()),))) as vendor:
                done = place.claude(binary(), "TASK: go", plugin, url=vendor.url)
        assert done.returncode == 1, done.stdout
        session = json.loads(done.stdout.splitlines()[-1])["session_id"]
        parked = wait_for_parked(place)
        assert len(parked) == 1
        assert f"session {session} was cut off" in json.dumps(parked)
        place.jackline("cancel", parked[0]["run"])
        assert place.parked() == []


@each_version
def test_a_session_that_a_wall_ended_goes_on_by_itself_once_at_the_reset(
    binary: Callable[[], Path], tmp_path: Path
) -> None:
    received: list[str] = []
    first = wall(resets_in=15)

    def model(asked: ClientRequest) -> Reply:
        received.append(json.dumps(asked.body.get("messages"), ensure_ascii=False))
        return first if len(received) == 1 else Say("The task is done.")

    consent = "[resume]\nsessions = true\n"
    with service(tmp_path, [Rule(model)], consent, claude=binary()) as place:
        plugin = written_plugin(tmp_path / "market")
        done = place.claude(binary(), "TASK: go", plugin)
        assert done.returncode == 1, done.stdout
        (parked,) = wait_for_parked(place)
        run = wait_for_end(place)
    assert (run["run"], run["state"]) == (parked["run"], "finished")
    assert len(received) == 2, "nobody asked in between, and nobody twice"
    assert "TASK: go" in received[1], "it is the same session"
    assert "You were cut off by" in received[1]


def wait_for_end(place: Place) -> dict[str, str]:
    for _ in range(900):
        (saved,) = saved_runs(place.state)
        if saved.state not in (RunState.PARKED, RunState.RUNNING):
            (run,) = json.loads(place.jackline("ls", "--json"))["runs"]
            return dict(run)
        time.sleep(0.2)
    raise AssertionError("it never ended")


def wait_for_parked(place: Place) -> list[dict[str, str]]:
    for _ in range(1000):
        has_runs = (place.state / "flows.db").exists()
        if has_runs and any(run.state is RunState.PARKED for run in saved_runs(place.state)):
            return place.parked()
        time.sleep(0.1)
    raise AssertionError("nothing is parked")


@each_version
def test_a_service_that_is_down_costs_one_notice_and_no_errors(
    binary: Callable[[], Path], tmp_path: Path
) -> None:
    listener = Listener()
    rules = one_of_two_dies(wall(), listener)
    with (
        service(tmp_path, rules) as place,
        SimulatedProvider(script=ReplyScript(tuple(rules))) as vendor,
    ):
        http = HttpHook(place.url + PATH, HEADER, hook_token(StateDir(place.state).salt()))
        plugin = written_plugin(tmp_path / "market", http)
        (plugin / ".mcp.json").unlink()  # its first tool would start the service
        place.jackline("down")
        first = place.claude(binary(), "TASK: look at all parts", plugin, url=vendor.url)
        second = place.claude(binary(), "TASK: look at all parts", plugin, url=vendor.url)
    for done in (first, second):
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        assert "ECONNREFUSED" not in done.stdout
        assert "hook error" not in done.stdout
    assert list((tmp_path / "state").glob("hooks-down-reported"))


@each_version
@pytest.mark.parametrize(
    ("command", "tool"), [("status", "status"), ("why a0123", "why"), ("resume a0123", "agent")]
)
def test_a_slash_command_asks_the_model_to_use_its_tool(
    binary: Callable[[], Path], command: str, tool: str, tmp_path: Path
) -> None:
    listener = Listener()
    with service(tmp_path, [Rule(listener)]) as place:
        plugin = written_plugin(tmp_path / "market")
        done = place.claude(binary(), f"/jackline:{command}", plugin)
    assert done.returncode == 0, done.stderr
    asked = "".join(listener.received)
    assert f"tool `{tool}`" in asked
    if " " in command:
        assert "a0123" in asked
    assert '"name":"jackline"' not in asked


@pytest.mark.parametrize("binary", BINARIES.values(), ids=BINARIES)
def test_the_plugin_is_valid(binary: Callable[[], Path], tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    plugin = written_plugin(tmp_path / "market")
    for folder in (plugin, plugin.parent):
        done = subprocess.run(
            [str(binary()), "plugin", "validate", str(folder)],
            env=environment(home, "http://127.0.0.1:1", subscription=False),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
