"""A model that answers by script, without a network: for testing agents and flows.

    model = ScriptedModel.in_turn(Say("", (("add", {"a": 1, "b": 2}),)), Say("It is 3."))
    outcome = await MessagesRunner(model).carry(task, notebook, leave)
    assert model.paid == 2

Laws: (1) an answer follows from the request and the script alone, so that a conversation that is
gone on with in another process gets the same answers; (2) every request is in the ledger, with what
became of it.
Not here: a provider on a real socket (provider.py), the script's words (simulator/mind.py).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime

import msgspec

from jackline.agents.outcome import Usage
from jackline.agents.ports import Answer, Caller, ModelFailedError
from jackline.agents.task import JsonObject
from jackline.clock import Clock, SystemClock
from jackline.errors import InternalError
from jackline.failures import Observation, classify
from jackline.failures.sentences import name_of
from jackline.simulator.conversation import Asked, read_asked
from jackline.simulator.mind import Fail, Mind, Reply, Rule, Say


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One line of the ledger: what was asked, by whom, and the answer, if it came to one."""

    raw: bytes
    caller: Caller
    answer: Answer | None

    @property
    def body(self) -> JsonObject:
        """What was asked."""
        return msgspec.json.decode(self.raw, type=dict[str, object])


class ScriptedModel:
    """A `Model`; the first rule that fits answers, as with `SimulatedProvider.says`."""

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
        self._mind = Mind(rules)

    @property
    def paid(self) -> int:
        """How many requests were answered."""
        return sum(request.answer is not None for request in self.ledger)

    async def ask(self, body: JsonObject, caller: Caller) -> Answer:
        """The scripted answer; ModelFailedError where the script says `Fail`."""
        # As it would be on the wire: what is asked later must not change what was asked.
        raw = msgspec.json.encode(body)
        asked = read_asked("/v1/messages", _headers(caller), raw, call=len(self.ledger))
        if asked is None:
            raise InternalError("The body of a model call is not a JSON object.")
        reply = self._mind.reply(asked)
        place = len(self.ledger)
        self.ledger.append(ModelRequest(raw, caller, None))
        if isinstance(reply, Say):
            if reply.delay:
                await self._clock.sleep(reply.delay)
            answer = _answer(reply, asked)
            self.ledger[place] = ModelRequest(raw, caller, answer)
            return answer
        raise _failed(reply, self._clock.now())


def _headers(caller: Caller) -> dict[str, str]:
    return {
        "x-claude-code-session-id": caller.session_id,
        "x-claude-code-agent-id": caller.task_id,
    }


def _answer(say: Say, asked: Asked) -> Answer:
    # The same conversation gets the same ids, whoever asks and however often.
    mark = hashlib.sha256(f"{asked.session} {asked.turn}".encode()).hexdigest()[:10]
    content: list[JsonObject] = [{"type": "text", "text": say.text}] if say.text else []
    for number, (name, given) in enumerate(say.calls, 1):
        call_id = f"toolu_{mark}_{number}"
        content.append({"type": "tool_use", "id": call_id, "name": name, "input": given})
    # A model without a provider has no caches: later turns have most of their input cached.
    cached = asked.input_tokens * 9 // 10 if asked.turn else 0
    usage = Usage(asked.input_tokens - cached, say.output_tokens, cached, 0)
    return Answer(content, say.stop_reason, usage, asked.model, f"req_{mark}")


def _failed(reply: Reply, now: datetime) -> ModelFailedError:
    if isinstance(reply, Fail):
        refusal = reply.refusal()
        seen = Observation.of_response(refusal.status, refusal.headers, refusal.body.encode())
        status: int | None = refusal.status
    else:
        # Faults of the wire all look the same to whoever has no wire.
        seen = Observation.of_exception(ConnectionResetError(104, "connection reset by peer"))
        status = None
    failure = classify(seen, now=now)
    return ModelFailedError(failure, says=f"Scripted: {name_of(failure)}.", status=status)
