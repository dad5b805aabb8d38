"""A model and a runner that answer by script, without a network: for testing agents and flows.

    model = ScriptedModel.in_turn(Say("", (("add", {"a": 1, "b": 2}),)), Say("It is 3."))
    runner = ScriptedRunner(lambda task: Play(value="done", turns=3))

Rules: (1) an answer follows from the request and the script alone, so that a conversation that is
resumed in another process gets the same answers; (2) every request is in the ledger, with what
became of it; (3) the runner fulfils a runner's contract: a check before each turn, a line for
each, and it continues where the agent's log ends; (4) it counts what really ran, so that a test
can distinguish replays from repeats.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from jackline.agents.outcome import Ending, Evidence, Outcome
from jackline.agents.runner import (
    AgentLog,
    AgentTask,
    CallGate,
    JsonObject,
    ModelCaller,
    ModelFailedError,
    StopAgentError,
    WholeAnswer,
    evidence_of,
    within,
)
from jackline.clock import Clock, SystemClock
from jackline.dialects import TokenUsage
from jackline.errors import InternalError
from jackline.failures import Failure, Kind, Observation, Scope, classify
from jackline.failures.sentences import name_of
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.reply_script import Fail, Reply, ReplyScript, Rule, Say


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One entry of the ledger: the request, its caller, and the answer if there was one."""

    raw: bytes
    caller: ModelCaller
    answer: WholeAnswer | None

    @property
    def body(self) -> JsonObject:
        """The body as JSON."""
        return msgspec.json.decode(self.raw, type=dict[str, object])


class ScriptedModel:
    """A `Model`; the first rule that matches answers, as with `SimulatedProvider.says`."""

    def __init__(self, *script: Rule | Reply, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self.ledger: list[ModelRequest] = []
        self.says(*script)

    @classmethod
    def in_turn(cls, *replies: Reply, clock: Clock | None = None) -> ScriptedModel:
        """Answer the first turn of every conversation with the first reply, and so on."""
        rules = (Rule(reply, turn=turn) for turn, reply in enumerate(replies))
        return cls(*rules, clock=clock)

    def says(self, *script: Rule | Reply) -> None:
        """Answer by these rules from now on."""
        rules = tuple(each if isinstance(each, Rule) else Rule(each) for each in script)
        self._script = ReplyScript(rules)

    @property
    def paid(self) -> int:
        """How many requests were answered."""
        return sum(request.answer is not None for request in self.ledger)

    async def ask(self, body: JsonObject, caller: ModelCaller) -> WholeAnswer:
        """The scripted answer; ModelFailedError where the script says `Fail`."""
        # As on the wire: later changes to the body must not change the ledger.
        raw = msgspec.json.encode(body)
        headers = {
            "x-claude-code-session-id": caller.session_id,
            "x-claude-code-agent-id": caller.task_id,
        }
        request = ClientRequest.parse("/v1/messages", headers, raw, call=len(self.ledger))
        if request is None:
            raise InternalError("The body of a model call is not a JSON object.")
        reply = self._script.reply(request)
        place = len(self.ledger)
        self.ledger.append(ModelRequest(raw, caller, None))
        if not isinstance(reply, Say):
            raise _failed(reply, self._clock.now())
        if reply.delay:
            await self._clock.sleep(reply.delay)
        # The same conversation always gets the same ids.
        mark = hashlib.sha256(f"{request.session} {request.turn}".encode()).hexdigest()[:10]
        content: list[JsonObject] = [{"type": "text", "text": reply.text}] if reply.text else []
        for number, (name, arguments) in enumerate(reply.calls, 1):
            call_id = f"toolu_{mark}_{number}"
            content.append({"type": "tool_use", "id": call_id, "name": name, "input": arguments})
        # A model without a provider has no caches: later turns have most of their input cached.
        cached = request.input_tokens * 9 // 10 if request.turn else 0
        usage = TokenUsage(request.input_tokens - cached, reply.output_tokens, cached)
        answer = WholeAnswer(content, reply.stop_reason, usage, request.model, f"req_{mark}")
        self.ledger[place] = ModelRequest(raw, caller, answer)
        return answer


def _failed(reply: Reply, now: datetime) -> ModelFailedError:
    if isinstance(reply, Fail):
        refusal = reply.refusal()
        seen = Observation.of_response(refusal.status, refusal.headers, refusal.body.encode())
        status: int | None = refusal.status
    else:
        # Without a wire all faults of the wire look the same.
        seen = Observation.of_exception(ConnectionResetError(104, "connection reset by peer"))
        status = None
    failure = classify(seen, now=now)
    says = f"Scripted: {name_of(failure)}."
    return ModelFailedError(failure, evidence_of(failure, says=says, status=status, attempts=1))


_TURN = "turn"
MODEL = "scripted-model"


@dataclass(frozen=True, slots=True)
class Play:
    """What one agent does: its turns, what each takes, and how it ends."""

    value: object = "done"
    turns: int = 1
    tokens: int = 100
    """For each turn."""
    dollars: float | None = None
    """For each turn."""
    seconds: float = 0.0
    """For each turn."""
    ending: Ending = Ending.COMPLETION
    evidence: Evidence = field(default_factory=Evidence)
    text: str = ""
    during: Callable[[], Awaitable[None]] | None = None
    """Done in each turn, as a tool would."""


Script: TypeAlias = Callable[[AgentTask], Play | object]


class ScriptedRunner:
    """A runner that plays a script; anything but a `Play` is the value of one."""

    def __init__(
        self, script: Script | None = None, *, name: str = "messages", clock: Clock | None = None
    ) -> None:
        self.name = name
        self._script = script or (lambda task: f"answer to {task.prompt}")
        self._clock = clock or SystemClock()
        self.begun: list[str] = []
        """Labels of the agents that were begun, once for each time."""
        self.asked: list[str] = []
        """Labels of the agents that called a model, also those that met a quota."""
        self.answered: list[str] = []
        """Labels of the agents whose turns were answered."""
        self.tasks: list[AgentTask] = []
        self.at_once = 0
        self.most_at_once = 0
        self.wall_until: datetime | None = None
        """Before this time every turn meets a quota."""
        self.wall_is_billing = False

    async def run(self, task: AgentTask, log: AgentLog, gate: CallGate) -> Outcome[object]:
        """Play the agent on from where its log ends."""
        self.begun.append(task.label)
        self.tasks.append(task)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            played: Any = self._script(task)
            if inspect.isawaitable(played):
                played = await played
            play = played if isinstance(played, Play) else Play(value=played)
            return await self._played(task, play, log, gate)
        finally:
            self.at_once -= 1

    async def _played(
        self, task: AgentTask, play: Play, log: AgentLog, gate: CallGate
    ) -> Outcome[object]:
        done = sum(entry.kind == _TURN for entry in log.entries)
        ending, evidence = play.ending, play.evidence
        try:
            while done < play.turns:
                await self._turn(task, play, log, gate)
                done += 1
        except StopAgentError as stop:
            ending, evidence = stop.ending, stop.evidence
        completed = ending is Ending.COMPLETION
        return Outcome(
            ending,
            play.value if completed else None,
            text=play.text or (str(play.value) if completed else ""),
            evidence=evidence,
            usage=TokenUsage(output_tokens=done * play.tokens),
            cost=None if play.dollars is None else done * play.dollars,
            turns=done,
        )

    async def _turn(self, task: AgentTask, play: Play, log: AgentLog, gate: CallGate) -> None:
        await gate.before_call()
        self.asked.append(task.label)
        if play.seconds:
            await within(gate.time_limit, self._clock.sleep(play.seconds))
        while self.wall_until is not None and self._clock.now() < self.wall_until:
            await gate.wall(self._wall(), "You've hit your session limit")
            self.asked.append(task.label)
        if play.during is not None:
            await within(gate.time_limit, play.during())
        await log.write(_TURN, {"answer": "…"})
        self.answered.append(task.label)
        gate.spent(MODEL, TokenUsage(output_tokens=play.tokens), play.dollars)

    def _wall(self) -> Failure:
        # The same as `classify` returns for a real session limit.
        if self.wall_is_billing:
            return Failure(Kind.BILLING, None, Scope.ACCOUNT, False, True)
        return Failure(
            Kind.ACCOUNT_QUOTA,
            "session",
            Scope.ACCOUNT,
            retry_same=False,
            failover_helps=True,
            resets_at=self.wall_until,
        )
