"""The runner `claude-code` goes by what it sees, with a client that does as the test says."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from jackline import event_loop
from jackline.agents.claude_code.runner import ClaudeCodeRunner
from jackline.agents.outcome import Ending, Evidence, Outcome
from jackline.agents.prices import Price
from jackline.agents.process.child import ProcessMark, is_alive, mark_of
from jackline.agents.process.program import StartCommand, StartRequest
from jackline.agents.runner import AgentTask, LogEntry, StopAgentError
from jackline.batches.tool import ToolContext, ToolOutput
from jackline.dialects import TokenUsage
from jackline.task_proof import named_task
from tests.agents.claude_code import played_client
from tests.agents.claude_code.streams import (
    SESSION,
    call,
    init,
    result,
    resulted,
    said,
    synthetic,
    text,
)
from tests.agents.process.doubles import FreeLeave, Pages
from tests.agents.process.world import until
from tests.agents.world import Limit

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the played client is started by its #!")

WALL = "You've hit your session limit · resets 8:02am (UTC)"
AT_WALL = synthetic(WALL) + result(is_error=True, api_error_status=429, result=WALL) + b"EXIT 1\n"
SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


@dataclass
class Client:
    """A client in a folder; it plays these in turn."""

    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        source = Path(played_client.__file__).read_text()
        self.program.write_text(f"#!{sys.executable}\n{source}")
        self.program.chmod(0o755)

    @property
    def program(self) -> Path:
        return self.folder / "claude"

    def plays(self, *plays: bytes) -> None:
        for number, play in enumerate(plays):
            (self.folder / f"play-{number}").write_bytes(play)

    @property
    def starts(self) -> list[dict[str, Any]]:
        log = self.folder / "starts.jsonl"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def kept(self, *lines: dict[str, Any]) -> Path:
        """A transcript as the client would have written it."""
        path = self.folder / ".claude" / "projects" / "-p" / f"{SESSION}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    def runner(self, **more: Any) -> ClaudeCodeRunner:
        environment = {
            "HOME": str(self.folder),
            "PATH": os.environ["PATH"],
            "CLAUDECODE": "1",
            "ANTHROPIC_CUSTOM_HEADERS": "x-mine: 1",
        }
        program = str(self.program)
        return ClaudeCodeRunner(
            "http://127.0.0.1:1/", program=program, environment=environment, **more
        )

    def carry(
        self, pages: Pages | None = None, leave: FreeLeave | None = None, **more: Any
    ) -> Outcome[object]:
        task = AgentTask("task", SESSION, **{"prompt": "THE TASK", "cwd": self.folder, **more})
        return run(self.runner().run(task, pages or Pages(), leave or FreeLeave()))


def run(main: Coroutine[Any, Any, Outcome[object]]) -> Outcome[object]:
    async def in_time() -> Outcome[object]:
        async with asyncio.timeout(240):
            return await main

    return event_loop.run(in_time())


def user(words: str) -> dict[str, Any]:
    return {"type": "user", "sessionId": SESSION, "message": {"role": "user", "content": words}}


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(tmp_path / "client")


def test_neither_prompt_nor_system_nor_secret_stands_in_the_command_line(client: Client) -> None:
    client.plays(init() + result())
    servers = {"web": {"type": "http", "url": "http://x", "headers": {"Authorization": "SECRET"}}}
    outcome = client.carry(system="SYSTEM", mcp_servers=servers, tool_names=("Read", "Bash(git *)"))
    assert outcome.value == "The answer."
    (start,) = client.starts
    line = " ".join(start["arguments"])
    assert not any(word in line for word in ("THE TASK", "SYSTEM", "SECRET"))
    assert start["prompt"] == "THE TASK"
    assert start["files"]["--append-system-prompt-file"] == "SYSTEM"
    assert json.loads(start["files"]["--mcp-config"])["mcpServers"] == servers
    assert "--tools Read,Bash --allowedTools Bash(git *),mcp__web" in line
    assert "--permission-mode dontAsk" in line


def test_all_calls_go_to_the_gateway_under_the_runs_name_and_class(client: Client) -> None:
    client.plays(result())
    task = AgentTask("task", SESSION, "THE TASK", cwd=client.folder, class_="background")
    runner = client.runner(tag="run-7", token="gateways-own")  # noqa: S106
    run(runner.run(task, Pages(), FreeLeave()))
    environ = client.starts[0]["environ"]
    assert environ["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:1/t/run-7"
    assert environ["CLAUDECODE"] is None, "it is no part of a client around us"
    assert environ["API_TIMEOUT_MS"], "it can wait at the gateway"
    assert environ["ANTHROPIC_CUSTOM_HEADERS"].splitlines() == [
        "x-mine: 1",
        "x-jackline-token: gateways-own",
        f"x-jackline-task: {named_task('task')[0][1]}",
        "x-jackline-class: background",
    ]
    assert "gateways-own" not in repr(vars(runner))


def test_a_wall_is_told_to_the_run_and_the_same_session_goes_on(client: Client) -> None:
    client.kept(user("THE TASK"))
    client.plays(init() + AT_WALL, AT_WALL, result())
    leave = FreeLeave()
    outcome = client.carry(leave=leave)
    assert outcome.ok
    assert [failure.sub for failure, _ in leave.walls] == ["session", "session"]
    for start in client.starts:
        assert start["arguments"][4:6] == ["--resume", SESSION]
    assert "usage limit" in client.starts[2]["prompt"]
    assert "THE TASK" not in client.starts[2]["prompt"]


def test_a_resumed_session_keeps_the_models_context_option(client: Client) -> None:
    client.kept(user("THE TASK"))
    client.plays(init() + AT_WALL, result())
    client.carry()
    first, second = (start["arguments"] for start in client.starts)
    assert "--model" not in first
    assert second[second.index("--model") + 1] == "claude-opus-4-8[1m]"


def test_a_run_that_is_to_be_aborted_at_a_wall_ends_with_the_quota(client: Client) -> None:
    async def abort() -> None:
        raise StopAgentError(Ending.QUOTA, Evidence(says="used up"))

    client.plays(init() + AT_WALL)
    outcome = client.carry(leave=FreeLeave(at_wall=abort))
    assert (outcome.terminated_by, outcome.evidence.says) == (Ending.QUOTA, "used up")


def test_an_invalid_answer_is_asked_for_again_with_the_validators_words(client: Client) -> None:
    client.kept(user("THE TASK"))
    client.plays(
        result(structured_output={"x": "nine"}), result(), result(structured_output={"x": 9})
    )
    outcome = client.carry(schema=SCHEMA)
    assert (outcome.terminated_by, outcome.value) == (Ending.COMPLETION, {"x": 9})
    _, second, third = (start["prompt"] for start in client.starts)
    assert "integer" in second
    assert "without its answer" in third


def test_a_failure_between_does_not_use_up_what_may_be_asked_again(client: Client) -> None:
    client.kept(user("THE TASK"))
    client.plays(result(), AT_WALL, result(), result(structured_output={"x": 9}))
    assert client.carry(schema=SCHEMA).value == {"x": 9}


def test_a_budget_that_is_used_up_ends_it_at_the_turn_and_all_that_came_is_kept(
    client: Client,
) -> None:
    turn = said("m1", text("One."), call("t1", command="ls")) + resulted("t1", "a.py")
    client.plays(init() + turn + b"WAIT\n")
    stop = StopAgentError(Ending.BUDGET, Evidence(says="5,000 tokens are used up"))
    pages = Pages()
    outcome = client.carry(pages, FreeLeave(stop=stop, stop_after=1))
    assert (outcome.terminated_by, outcome.text) == (Ending.BUDGET, "One.")
    assert outcome.evidence.says == "5,000 tokens are used up"
    assert pages.of("ended")[-1]["says"] == "5,000 tokens are used up"
    assert pages.of("result"), "what its turn had called was heard out"
    assert not _lives(pages)


def test_an_agent_whose_time_is_up_is_ended_with_its_process(client: Client) -> None:
    client.plays(init() + b"WAIT\n")
    began = asyncio.Event()
    pages = Pages(written=lambda entry: began.set() if entry.kind == "began" else None)
    outcome = client.carry(pages, FreeLeave(time_limit=Limit(began.wait)))
    assert outcome.terminated_by is Ending.TIMEOUT
    assert outcome.evidence.says == "Its time is up."
    assert not _lives(pages)


def test_leave_for_a_further_call_is_asked_for_while_the_program_works_on(client: Client) -> None:
    turn = said("m1", text("One."), call("t1", command="ls")) + resulted("t1", "a.py")
    client.plays(init() + turn + result())
    leave = FreeLeave()
    assert client.carry(Pages(), leave).ok
    assert leave.works_meanwhile == [False, True]


def test_parallel_tools_of_one_answer_are_followed_by_one_call(client: Client) -> None:
    tools = said("m1", call("t1", command="ls")) + said("m1", call("t2", command="ls"))
    results = resulted("t1", "a.py") + resulted("t2", "a.py")
    client.plays(init() + tools + results + said("m2", text("Done.")) + result())
    leave = FreeLeave()
    assert client.carry(Pages(), leave).ok
    assert leave.asked == 2


def test_an_upstream_that_repeats_one_id_hides_no_turn(client: Client) -> None:
    turn = said("m1", call("t1", command="ls")) + resulted("t1", "a.py")
    client.plays(init() + turn * 5 + b"WAIT\n")
    stop = StopAgentError(Ending.TURNS, Evidence(says="3 turns"))
    leave = FreeLeave(stop=stop, stop_after=3)
    assert client.carry(Pages(), leave).terminated_by is Ending.TURNS


def test_sub_agents_end_with_the_budget_while_their_tool_runs(client: Client) -> None:
    """The tool that runs them is not waited for: all that they do is calls."""
    start = said("m1", call("a1", "Agent", prompt="Do it."))
    client.plays(init() + start + said("m2", call("t1", command="ls"), parent="a1") + b"WAIT\n")
    stop = StopAgentError(Ending.BUDGET, Evidence(says="All is used up."))
    pages = Pages()
    leave = FreeLeave(over=[None, stop])
    assert client.carry(pages, leave).terminated_by is Ending.BUDGET
    assert leave.asked == 2, "their calls are no turns"
    assert not _lives(pages)


def test_a_used_up_window_ends_the_process_and_its_session_resumes(client: Client) -> None:
    client.kept(user("THE TASK"))
    turn = said("m1", text("One."), call("t1", command="ls")) + resulted("t1", "a.py")
    client.plays(init() + turn + b"WAIT\n", result())
    stop = StopAgentError(Ending.BUDGET, Evidence(says="Used up."), may_resume=True)
    leave = FreeLeave(over=[stop])
    assert client.carry(Pages(), leave).ok
    assert len(client.starts) == 2
    assert client.starts[1]["arguments"][4:6] == ["--resume", SESSION]
    assert "There is room in it again" in client.starts[1]["prompt"]
    assert leave.asked == 2


def test_limits_count_what_earlier_processes_have_used(client: Client) -> None:
    client.kept(user("THE TASK"))
    client.plays(init() + said("m1", text("One.")) + AT_WALL, result(), result())
    client.carry(max_turns=5, max_dollars=2.0)
    first, second = (start["arguments"] for start in client.starts)
    assert first[first.index("--max-turns") + 1] == "5"
    assert second[second.index("--max-turns") + 1] == "4"
    assert second[second.index("--max-budget-usd") + 1] == "1.500000"


def test_what_the_conversation_lost_is_told_though_only_the_notebook_knows(client: Client) -> None:
    client.kept(user("THE TASK"))
    client.plays(
        init()
        + said("m1", call("t1", command="make one"))
        + resulted("t1", "one is made")
        + said("m2", call("t2", command="make two"))
        + b"EXIT 9\n",
        result(),
    )
    pages = Pages()
    assert client.carry(pages).terminated_by is Ending.CRASH
    assert client.carry(pages).ok
    finished, lost = client.starts[1]["prompt"].split("may or may not have run")
    assert "make one" in finished
    assert "one is made" in finished
    assert "make two" in lost


def test_what_was_told_once_is_not_told_again(client: Client) -> None:
    client.kept(user("THE TASK"))
    client.plays(
        init() + said("m2", call("t2", command="make two")) + b"EXIT 9\n", AT_WALL, result()
    )
    pages = Pages()
    client.carry(pages)
    told = user("…may or may not have run: - Bash (t2)")

    async def written_down() -> None:
        client.kept(user("THE TASK"), told)

    assert client.carry(pages, FreeLeave(at_wall=written_down)).ok
    assert "t2" in client.starts[1]["prompt"]
    assert "t2" not in client.starts[2]["prompt"]


def test_an_earlier_process_that_still_lives_is_ended_before_the_next_begins(
    client: Client,
) -> None:
    client.kept(user("THE TASK"))
    client.plays(init() + b"WAIT\n", result())
    task = AgentTask("task", SESSION, "THE TASK", cwd=client.folder)
    alone = Pages()

    async def main() -> Outcome[object]:
        first = asyncio.create_task(client.runner().run(task, alone, FreeLeave()))
        await until(lambda: alone.of("began"))
        pages = Pages(list(alone.lines))
        second = await client.runner().run(task, pages, FreeLeave())
        assert not _lives(alone)
        await first
        return second

    assert run(main()).ok


def test_a_process_that_wrote_no_word_is_not_waited_for_by_its_number_alone(
    client: Client,
) -> None:
    client.plays(result())
    ours = mark_of(os.getpid())
    pages = Pages([LogEntry("process", {"pid": ours.pid, "began": "before the last boot"})])
    assert client.carry(pages).ok


def test_another_agents_session_is_gone_on_with_a_new_task(client: Client) -> None:
    client.kept(user("THE FIRST TASK"))
    client.plays(result())
    task = AgentTask(
        "task", "22222222-2222-4222-8222-222222222222", "THE TASK", resume_session=SESSION
    )
    outcome = run(client.runner().run(task, Pages(), FreeLeave()))
    assert outcome.session_id == SESSION
    (start,) = client.starts
    assert start["arguments"][4:6] == ["--resume", SESSION]
    assert start["prompt"] == "THE TASK"


def test_a_session_that_is_not_here_is_refused_before_anything_is_started(client: Client) -> None:
    outcome = client.carry(resume_session="33333333-3333-4333-8333-333333333333")
    assert outcome.terminated_by is Ending.REFUSED
    assert not client.starts


def test_who_goes_on_is_told_what_its_caller_says_happened(client: Client) -> None:
    client.kept(user("THE TASK"))
    client.plays(result())
    client.carry(what_happened="The machine was restarted.")
    assert client.starts[0]["prompt"].startswith("The machine was restarted.")


def test_a_session_that_was_cut_off_before_its_first_line_is_begun_under_another_id(
    client: Client,
) -> None:
    client.kept({"type": "queue-operation", "sessionId": SESSION})
    client.plays(result())
    assert client.carry().ok
    arguments = client.starts[0]["arguments"]
    assert arguments[4] == "--session-id"
    assert arguments[5] != SESSION


class Shout:
    """A Python function as a tool."""

    name = "shout"
    description = "Shouts."
    input_schema: ClassVar[dict[str, object]] = {"type": "object"}

    def read_only(self, _arguments: dict[str, object]) -> bool:
        return True

    async def run(self, _arguments: dict[str, object], _context: ToolContext) -> ToolOutput:
        return ToolOutput("HEY")


@pytest.mark.parametrize(
    ("more", "ending", "words"),
    [
        ({"tools": (Shout(),)}, Ending.REFUSED, "Python functions"),
        ({"schema": {"type": "nonsense"}}, Ending.REFUSED, "not valid JSON Schema"),
        ({"cwd": Path("/nowhere/at/all")}, Ending.REFUSED, "/nowhere/at/all"),
    ],
)
def test_what_cannot_be_done_is_said_with_what_to_do_instead(
    client: Client, more: dict[str, Any], ending: Ending, words: str
) -> None:
    outcome = client.carry(**more)
    assert outcome.terminated_by is ending
    assert words in outcome.evidence.says
    assert not client.starts


def test_a_program_that_is_not_installed_is_said_to_be_missing(client: Client) -> None:
    client.program.unlink()
    outcome = client.carry()
    assert outcome.terminated_by is Ending.REFUSED
    assert "install it" in outcome.evidence.says


def test_an_agent_that_had_ended_answers_from_its_notebook(client: Client) -> None:
    client.plays(init() + result())
    pages = Pages()
    first = client.carry(pages)
    shutil.rmtree(client.folder)
    client.folder.mkdir()
    again = client.carry(pages)
    assert (again.value, again.usage, again.cost) == (first.value, first.usage, first.cost)


def test_what_a_client_did_not_tell_is_priced_by_the_users_own_list(client: Client) -> None:
    client.plays(init() + said("m1", text("One.")) + b"EXIT 1\n")
    prices = {"claude-opus-*": Price(1e6, 1e6, cache_read=0.0, cache_write=0.0, cache_write_1h=0.0)}
    pages = Pages()
    assert client.carry(pages, prices=prices).cost == 3 + 1
    assert not client.carry(pages, prices=prices, max_dollars=4.0).ok
    assert len(client.starts) == 1, "its dollars were used up before"


def test_every_answer_is_written_down_before_the_next_is_heard(client: Client) -> None:
    client.plays(init() + said("m1", text("One.")) + said("m2", text("Two.")) + result())
    order: list[str] = []
    leave = FreeLeave()
    seen: Callable[[LogEntry], None] = lambda entry: order.append(entry.kind)  # noqa: E731
    client.carry(Pages(written=seen), leave)
    assert order == ["process", "began", "answer", "answer", "ended", "done"]


class StartingThread(ClaudeCodeRunner):
    """A runner that notes in which thread its start is prepared, and may be held up there."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.threads: list[threading.Thread] = []
        self.begun, self.may_go_on = threading.Event(), threading.Event()
        self.folders: list[Path] = []

    @contextmanager
    def start(self, task: AgentTask, request: StartRequest) -> Iterator[StartCommand]:
        self.threads.append(threading.current_thread())
        self.begun.set()
        assert self.may_go_on.wait(120)
        with super().start(task, request) as command:
            words = [Path(word) for word in command.command if word.endswith("system.txt")]
            self.folders += words
            yield command


def test_a_start_is_prepared_beside_the_event_loop_and_leaves_nothing(client: Client) -> None:
    """It reads files of the folder, which anybody may have written."""
    runner = StartingThread("http://127.0.0.1:1/", program=str(client.program), environment={})
    task = AgentTask("task", SESSION, "THE TASK", cwd=client.folder, system="SECRET")

    async def main() -> None:
        agent = asyncio.ensure_future(runner.run(task, Pages(), FreeLeave()))
        await asyncio.to_thread(runner.begun.wait, 120)
        assert runner.threads[0] is not threading.main_thread()
        agent.cancel()
        await asyncio.sleep(0)
        runner.may_go_on.set()
        with suppress(asyncio.CancelledError):
            await agent

    event_loop.run(main())
    assert len(runner.folders) == 1
    assert not any(each.exists() for each in runner.folders)
    assert client.starts == []


def _lives(pages: Pages) -> bool:
    told = pages.of("process")[-1]
    return is_alive(ProcessMark(int(str(told["pid"])), str(told["began"])))


LONG = "word " * 2_000
USAGE = b'"usage": {"input_tokens": 3, "output_tokens": 1, "cache_read_input_tokens": 10}'
BILL = b'{"inputTokens": 6, "outputTokens": 40, "cacheReadInputTokens": 20}'


def calling(usage: bytes, bill: bytes) -> bytes:
    """Two answers, between them a long result, with such usage and such a bill."""
    answers = said("m1", text(LONG), call("t1", command="ls")) + resulted("t1", LONG)
    play = init() + answers + said("m2", text("Done.")) + result(result="Done.")
    assert USAGE in play
    assert BILL in play
    return play.replace(USAGE, usage).replace(BILL, bill)


@pytest.mark.parametrize("usage", [b'"usage": {}', b'"usage": {"input_tokens": 1}'])
def test_usage_that_the_upstream_of_a_program_leaves_out_is_counted_by_us(
    client: Client, usage: bytes
) -> None:
    client.plays(calling(usage, b'{"inputTokens": 0, "outputTokens": 0}'))
    leave = FreeLeave()
    assert client.carry(leave=leave).ok
    assert leave.usage.input_tokens == pytest.approx(2 * len(LONG) / 4, rel=0.05)
    assert leave.usage.output_tokens == pytest.approx(len(LONG) / 4, rel=0.05)
    assert any("estimate" in says for says in leave.warnings)


@pytest.mark.parametrize("usage", [b'"usage": {}', b'"usage": {"input_tokens": 9000}'])
def test_an_honest_bill_of_a_program_is_charged_exactly(client: Client, usage: bytes) -> None:
    """Also one that comes late, after we had counted ourselves."""
    client.plays(calling(usage, b'{"inputTokens": 19000, "outputTokens": 2600}'))
    leave = FreeLeave()
    assert client.carry(leave=leave).ok
    assert leave.usage == TokenUsage(19_000, 2_600)


def test_what_the_users_settings_would_replace_is_in_the_runs_own_settings(tmp_path: Path) -> None:
    """The client applies `env` of settings over the environment that it is started with."""
    theirs = {
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:2",
        "ANTHROPIC_CUSTOM_HEADERS": "x-mine: 1\nX-Jackline-Task: other.0\nx-jackline-token: old",
        "CLAUDE_CODE_DISABLE_ATTACHMENTS": 0,
        "CLAUDE_CODE_TASK_LIST_ID": "shared",
        "ENABLE_TOOL_SEARCH": "true",
    }
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text(json.dumps({"env": theirs}))
    environment = {"HOME": str(tmp_path), "CLAUDE_CODE_USE_BEDROCK": "1"}
    runner = ClaudeCodeRunner("http://127.0.0.1:1", environment=environment, token="new")  # noqa: S106
    with runner.start(AgentTask("task", SESSION, "p", cwd=tmp_path), StartRequest(None, "m")) as it:
        file = Path(it.command[list(it.command).index("--settings") + 1])
        given = json.loads(file.read_text())["env"]
    assert given["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:1"
    ((name, proof),) = named_task("task")
    lines = ["x-mine: 1", "x-jackline-token: new", f"{name}: {proof}"]
    assert given["ANTHROPIC_CUSTOM_HEADERS"].splitlines() == lines
    assert given["CLAUDE_CODE_DISABLE_ATTACHMENTS"] == "1"
    assert given["ENABLE_TOOL_SEARCH"] == "false"
    assert given["CLAUDE_CODE_TASK_LIST_ID"] == given["CLAUDE_CODE_USE_BEDROCK"] == ""
    assert "CLAUDE_CODE_USE_BEDROCK" not in it.environment
    assert all(it.environment.get(name, "") == text for name, text in given.items())
