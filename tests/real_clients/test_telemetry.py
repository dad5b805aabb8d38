"""What the real Claude Code tells of itself is joined with what the gateway saw, and sent on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from jackline.simulator.reply_script import ReplyScript, Rule, Say
from jackline.testing import SimulatedProvider
from tests.claude_turns import fan_out
from tests.cli.gateways import Place, until
from tests.notifications.webhooks import Receiver, receiver
from tests.real_clients.clients import claude_binary
from tests.telemetry.collector import attributes, log_records, spans

pytestmark = pytest.mark.real_client
PLANTED = "PL4NTED"
GOOD = ("Bash", {"command": f"echo {PLANTED}", "description": "look"})
BAD = ("Bash", {"command": f"cat /nowhere/{PLANTED}", "description": "fail"})
MIND = ReplyScript(
    (
        Rule(fan_out(["PART-0", "PART-1"], background=False), sub_agent=False, turn=0),
        Rule(Say("Looking.", (GOOD, BAD)), sub_agent=True, turn=0),
        Rule(Say("It is fine."), sub_agent=True),
        Rule(Say("All parts are back.")),
    )
)


def place(folder: Path, upstream: str, collector: str) -> Place:
    """A user's machine that has asked for it, with the real client on its path."""
    (folder / "bin").mkdir()
    (folder / "bin" / "claude").symlink_to(claude_binary())
    file = folder / "own.toml"
    file.write_text(f'[otlp]\nendpoint = "{collector}"\nreceive = true\n')
    more = {
        "JACKLINE_CONFIG": str(file),
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "ANTHROPIC_API_KEY": "sk-ant-dummy",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    return Place(folder, upstream, more=more)


def told_of(running: Place, session: str) -> list[dict[str, Any]]:
    answer = running.jackline("status", "--session", session, "--json")
    assert answer.code == 0, answer.err
    agents: list[dict[str, Any]] = json.loads(answer.out)["agents"]
    return agents


def carried(folder: Path, kept: Receiver) -> tuple[str, list[dict[str, Any]], str]:
    """The session of one run of the client, what is told of it, and the same for people."""
    with SimulatedProvider(script=MIND) as provider:
        here = place(folder, provider.url, kept.url.removesuffix("/hook"))
        with here.up() as gateway:
            task = f"TASK: review {PLANTED}."
            done = here.jackline(
                "claude", "-p", task, "--output-format", "json", "--allowedTools", "Bash,Agent"
            )
            assert done.code == 0, done.err
            session = provider.ledger.entries[0].session
            agents = told_of(here, session)
            words = here.jackline("status", "--session", session[:8]).out
            gateway.interrupt()
            assert gateway.code() == 0
        until(lambda: bool(spans(kept)), "the spans")
    return session, agents, words


def test_calls_tokens_and_tools_of_the_client_stand_beside_what_was_seen(tmp_path: Path) -> None:
    with receiver() as kept:
        session, agents, words = carried(tmp_path, kept)
    main, *parts = sorted(agents, key=lambda agent: agent["agent"])
    assert main["agent"] == ""
    assert len(parts) == 2
    for agent in agents:
        assert agent["session"] == session
        assert agent["reported"]["requests"] == agent["seen"]["calls"] == 2
        assert agent["reported"]["tokens"] == agent["seen"]["tokens"]
        assert agent["reported"]["dollars"] > 0
    assert main["reported"]["tools"]["Agent"]["ok"] == 2
    for part in parts:
        bash = part["reported"]["tools"]["Bash"]
        assert (bash["ok"], bash["failed"]) == (1, 1)
        assert (part["reported"]["name"], part["reported"]["ended"]) == ("general-purpose", True)
    assert "  the client says:  2 calls" in words
    assert "  Bash: 2 runs, 1 failed" in words
    check_what_was_sent_on(kept, session, {part["agent"] for part in parts})


def check_what_was_sent_on(kept: Receiver, session: str, agents: set[str]) -> None:
    tools = [span for span in spans(kept) if span["name"] == "execute_tool Bash"]
    assert len(tools) == 4
    assert {attributes(tool)["gen_ai.agent.id"] for tool in tools} == agents
    by_id = {span["spanId"]: span for span in spans(kept)}
    for tool in tools:
        agent = by_id[tool["parentSpanId"]]
        assert agent["name"] == "invoke_agent"
        assert attributes(agent)["gen_ai.agent.id"] == attributes(tool)["gen_ai.agent.id"]
    records = [each for each in log_records(kept) if attributes(each)["session.id"] == session]
    requests = [each for each in records if attributes(each)["event.name"] == "api_request"]
    assert len(requests) == 6
    assert {each["traceId"] for each in requests} == {tool["traceId"] for tool in tools}
    sent = b"".join(body for _, body in kept.got)
    for secret in (PLANTED, "sk-ant-dummy", "It is fine"):
        assert secret.encode() not in sent


FLOW = """
from jackline import agent, flow


@flow
async def looks() -> str:
    return await agent("TASK: look.", label="looker", runner="claude-code", tools=["Bash"])
"""


def test_tools_of_a_flows_agent_stand_in_the_trace_of_its_run(tmp_path: Path) -> None:
    mind = ReplyScript((Rule(Say("Looking.", (GOOD,)), turn=0), Rule(Say("It is fine."))))
    with receiver() as kept, SimulatedProvider(script=mind) as provider:
        here = place(tmp_path, provider.url, kept.url.removesuffix("/hook"))
        (tmp_path / "looks.py").write_text(FLOW)
        with here.up() as gateway:
            done = here.jackline("run", tmp_path / "looks.py")
            assert done.code == 0, done.err
            gateway.interrupt()
            assert gateway.code() == 0
    (flow,) = (span for span in spans(kept) if span["name"] == "flow")
    (tool,) = (span for span in spans(kept) if span["name"] == "execute_tool Bash")
    assert tool["traceId"] == flow["traceId"]
    assert attributes(tool)["jackline.reported_by"] == "client"


def test_without_being_asked_the_client_sends_no_telemetry(tmp_path: Path) -> None:
    with receiver() as kept, SimulatedProvider(script=MIND) as provider:
        here = place(tmp_path, provider.url, kept.url.removesuffix("/hook"))
        (tmp_path / "own.toml").write_text("")
        with here.up():
            assert here.jackline("claude", "-p", "TASK: review.").code == 0
            answer = here.jackline("status", "--session", provider.ledger.entries[0].session)
            assert answer.code == 2
            assert "[otlp] receive = true" in answer.err
    assert kept.got == []
