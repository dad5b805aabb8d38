"""Run the crew of a drill with a vendor's own Python SDK: one process, one task for each agent.

Rules: (1) the SDK is used as its documentation shows, with its own retries; (2) a tool runs when
the whole answer is there; (3) what an agent sees, also errors, is told at the end as JSON.
Not here: fetching SDKs (vendor_sdks.py, anthropic_sdk.py), what is asserted (test_sdk_drills.py).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from jackline.drills.builtin_client import AgentEnd, AgentRecord, SeenError
from jackline.drills.claude_client import CountingProxy
from jackline.drills.drill import CrewPart
from jackline.drills.drill_clock import DrillClock
from jackline.drills.processes import stop

# What both programs share: an agent asks, runs its tools, and is asked again.
_FRAME = """
import asyncio, json, sys

url, given = sys.argv[1], json.load(sys.stdin)

async def agent(plan):
    memory, told = [], {"label": plan["label"], "error": "", "last": ""}
    try:
        for _ in range(plan["rounds"]):
            memory.append({"role": "user", "content": plan["prompt"]})
            while True:
                text, calls = await ask(plan["model"], memory)
                if not calls:
                    break
                await asyncio.sleep(given["tool_seconds"])
                answered(memory, calls)
            told["last"] = text
    except SdkError as error:
        told["error"] = f"{type(error).__name__}: {error}"
    return told

async def main():
    print(json.dumps(await asyncio.gather(*(agent(plan) for plan in given["plans"]))))

def said(command):
    return command.removeprefix("echo ")
"""
_ANTHROPIC = (
    """
import anthropic
SdkError = anthropic.APIError
TOOL = {"name": "Bash", "description": "Run a command.", "input_schema":
        {"type": "object", "properties": {"command": {"type": "string"}}}}
"""
    + _FRAME
    + """
client = anthropic.AsyncAnthropic(api_key="sk-ant-dummy", base_url=url)

async def ask(model, memory):
    async with client.messages.stream(
        model=model, max_tokens=1000, messages=memory, tools=[TOOL]
    ) as stream:
        message = await stream.get_final_message()
    memory.append({"role": "assistant", "content": [b.to_dict() for b in message.content]})
    text = "".join(b.text for b in message.content if b.type == "text")
    return text, [b for b in message.content if b.type == "tool_use"]

def answered(memory, calls):
    memory.append({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": c.id, "content": said(c.input["command"])}
        for c in calls
    ]})

asyncio.run(main())
"""
)
_OPENAI = (
    """
import openai
SdkError = openai.APIError
TOOL = {"type": "function", "function": {"name": "Bash", "strict": True, "parameters":
        {"type": "object", "properties": {"command": {"type": "string"}},
         "required": ["command"], "additionalProperties": False}}}
"""
    + _FRAME
    + """
client = openai.AsyncOpenAI(api_key="sk-dummy", base_url=url + "/v1")

async def ask(model, memory):
    async with client.chat.completions.stream(
        model=model, messages=memory, tools=[TOOL]
    ) as stream:
        message = (await stream.get_final_completion()).choices[0].message
    calls = [{"id": c.id, "type": "function", "function":
              {"name": c.function.name, "arguments": c.function.arguments}}
             for c in message.tool_calls or []]
    said = {"role": "assistant", "content": message.content}
    memory.append({**said, "tool_calls": calls} if calls else said)
    return message.content or "", message.tool_calls or []

def answered(memory, calls):
    for call in calls:
        command = json.loads(call.function.arguments)["command"]
        memory.append({"role": "tool", "tool_call_id": call.id, "content": said(command)})

asyncio.run(main())
"""
)


class SdkFleet:
    """A fleet as drills know it; `program` gets the base URL and the plans."""

    def __init__(
        self, program: str, packages: Path, part: CrewPart, url: str, pace: DrillClock
    ) -> None:
        self._program = program
        self._packages = packages
        self._part = part
        self._pace = pace
        self._witness = CountingProxy(url)
        self._records = {plan.label: AgentRecord(plan.label, plan.model) for plan in part.crew}

    @property
    def records(self) -> Sequence[AgentRecord]:
        """How far each agent of the crew is; read when the process has ended."""
        return list(self._records.values())

    @property
    def error_waits(self) -> Sequence[float]:
        """For each error that came over the wire, also those it keeps to itself, its wait."""
        return [error.waited * self._pace.speed for error in self._witness.errors]

    async def run(self) -> None:
        """Let all work to their ends."""
        async with self._witness:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-W", "ignore", "-c", self._program, self._witness.url),
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(self._packages)},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            try:
                out, _ = await process.communicate(self._orders())
            finally:
                await stop(process)
        now = self._pace.monotonic()
        for told, plan in zip(json.loads(out), self._part.crew, strict=True):
            record = self._records[plan.label]
            if told["error"]:
                record.errors.append(SeenError(0, told["error"], 0.0))
                record.finish(AgentEnd.DIED, now, told["error"])
            else:
                whole = told["last"] == plan.final_text
                record.finish(AgentEnd.FINISHED if whole else AgentEnd.MISLED, now)

    def _orders(self) -> bytes:
        plans = [
            {"label": p.label, "prompt": p.prompt, "model": p.model, "rounds": p.rounds}
            for p in self._part.crew
        ]
        given = {"plans": plans, "tool_seconds": self._pace.real(1.0)}
        return json.dumps(given).encode()


def anthropic_fleet(packages: Path, part: CrewPart, url: str, pace: DrillClock) -> SdkFleet:
    """A crew on Anthropic's SDK."""
    return SdkFleet(_ANTHROPIC, packages, part, url, pace)


def openai_fleet(packages: Path, part: CrewPart, url: str, pace: DrillClock) -> SdkFleet:
    """A crew on OpenAI's SDK, by Chat Completions."""
    return SdkFleet(_OPENAI, packages, part, url, pace)
