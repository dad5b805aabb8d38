"""Every tool that is run for an agent has a span below its agent, without input or output."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
from hypothesis import given
from hypothesis import strategies as st
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from jackline.agents.gateway_model import GatewayModel
from jackline.agents.messages import MessagesRunner
from jackline.agents.runner import ToolRun, ToolRuns, parse_tool_runs
from jackline.assembly import Service, StateDir
from jackline.simulator.reply_script import Rule, Say
from jackline.telemetry.settings import OtlpSettings
from jackline.telemetry.spans import ToolRan, Tracer
from jackline.testing import SimulatedProvider
from tests.agents.world import Counter, MemoryNotebook, OpenLeave, task
from tests.assembly.world import config_for, run
from tests.notifications.webhooks import Receiver, receiver
from tests.telemetry.collector import attributes, spans
from tests.telemetry.test_counters import ended


def traced(folder: Path, upstream: str, kept: Receiver) -> Service:
    otlp = OtlpSettings(kept.url.removesuffix("/hook"))
    return Service(replace(config_for(folder, upstream), otlp=otlp))


def by_name(kept: Receiver, name: str) -> list[dict[str, Any]]:
    return [span for span in spans(kept) if span["name"] == name]


def test_tools_of_an_agent_of_ours_are_below_it_in_the_trace_of_its_run(
    tmp_path: Path,
) -> None:
    calls = (("add", {"a": 1, "b": 2}), ("nonsense", {"secret": "T0K3N"}))

    async def main(kept: Receiver, simulated: SimulatedProvider) -> None:
        async with (
            traced(tmp_path, simulated.url, kept) as service,
            GatewayModel(service.url, headers=(("x-api-key", "sk-ant-dummy"),)) as model,
        ):
            runner = MessagesRunner(model, tag="run-1")
            job = task("Add.", tools=[Counter()], task_id="task-1", session_id="session-1")
            outcome = await runner.run(job, MemoryNotebook(), OpenLeave())
            assert outcome.ok, outcome

    with receiver() as kept, SimulatedProvider() as simulated:
        simulated.says(Rule(Say("I add.", calls), turn=0), Rule(Say("Done.")))
        run(main(kept, simulated))
    (agent,) = by_name(kept, "invoke_agent")
    (good,) = by_name(kept, "execute_tool add")
    (bad,) = by_name(kept, "execute_tool nonsense")
    for tool in (good, bad):
        assert (tool["traceId"], tool["parentSpanId"]) == (agent["traceId"], agent["spanId"])
        assert agent["startTimeUnixNano"] <= tool["startTimeUnixNano"] <= tool["endTimeUnixNano"]
        assert attributes(tool)["gen_ai.conversation.id"] == "session-1"
    assert "status" not in good
    assert attributes(bad)["error.type"] == "no such tool"
    assert b"T0K3N" not in b"".join(body for _, body in kept.got)


def test_each_call_of_a_batch_has_a_span_under_the_session_that_called(tmp_path: Path) -> None:
    async def main(kept: Receiver) -> None:
        async with traced(tmp_path, "http://127.0.0.1:9", kept) as service:
            running = StateDir(service.config.state_dir).running()
            assert running is not None
            headers = {
                "x-jackline-control": running.token,
                "x-jackline-folder": str(tmp_path),
                "x-jackline-client-session": "session-7",
            }
            async with (
                httpx2.AsyncClient(headers=headers, timeout=120) as http,
                streamable_http_client(f"{service.url}/mcp", http_client=http) as streams,
                ClientSession(streams[0], streams[1]) as client,
            ):
                await client.initialize()
                calls = [
                    {"id": "one", "tool": "read", "input": {"path": "there.txt"}},
                    {"id": "two", "tool": "read", "input": {"path": "T0K3N.txt"}},
                    {"id": "three", "tool": "read", "input": {"path": "x"}, "needs": ["two"]},
                ]
                await client.call_tool("batch", {"calls": calls})

    (tmp_path / "there.txt").write_text("words of a file")
    with receiver() as kept:
        run(main(kept))
    found = {attributes(span)["gen_ai.tool.call.id"]: span for span in spans(kept)}
    assert set(found) == {"one", "two"}, "what was skipped never ran"
    assert {span["name"] for span in found.values()} == {"execute_tool read"}
    assert attributes(found["one"])["gen_ai.conversation.id"] == "session-7"
    assert found["two"]["status"]["code"] == 2
    sent = b"".join(body for _, body in kept.got)
    assert b"words of a file" not in sent
    assert b"T0K3N" not in sent


def test_a_tool_is_placed_with_the_calls_of_its_agent_and_else_with_its_session() -> None:
    tracer = Tracer(str)
    tracer.call_ended(ended()._replace(session="s1", agent="a1", tag="r1"))
    tool = ToolRan(
        "s1", "a1", "Bash", 10.0, 11.0, ok=False, reported_by="client", error="ShellError"
    )
    tracer.tool_ran(tool)
    tracer.tool_ran(replace(tool, session="never heard of", agent=""))
    found = tracer.take(0.0, all_of_them=True)
    agent = next(span for span in found if span.name == "invoke_agent")
    known, unknown = (span for span in found if span.name == "execute_tool Bash")
    assert (known.trace, known.parent, known.error) == (agent.trace, agent.span, "ShellError")
    assert unknown.parent == ""
    assert unknown.trace != agent.trace


@given(st.lists(st.builds(ToolRun, st.text(), st.floats(0, 2e9), st.floats(0, 1e6), st.booleans())))
def test_what_is_reported_in_the_header_is_read_again(ran: list[ToolRun]) -> None:
    kept = ToolRuns()
    for tool in ran:
        kept.add(tool)
    value = kept.take_header()
    assert kept.take_header() == "", "sent once"
    read = parse_tool_runs(value.encode("latin-1"))
    assert [(tool.name, tool.ok) for tool in read] == [
        (tool.name[:64], tool.ok) for tool in ran[-32:]
    ]


@given(st.binary() | st.recursive(st.none() | st.text(), st.lists).map(json.dumps).map(str.encode))
def test_whatever_else_the_header_holds_is_no_tool_and_no_error(value: bytes) -> None:
    for tool in parse_tool_runs(value):
        assert isinstance(tool.name, str)
