"""Decide what an agent does next, from the state of its conversation.

Rules: (1) pure; (2) an answer counts as the result only when it is whole and, with a schema, valid;
(3) a missing or invalid answer is requested again a limited number of times, then the agent ends as
`schema` with its last text; (4) continuations and turns are counted, so that nothing runs for ever.
Not here: doing it (runner.py), failed calls (agents/runner.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from jackline.agents.messages.conversation import CUT_OFF, PAUSED, AgentConversation, TurnToolCall
from jackline.agents.messages.request import STRUCTURED_OUTPUT, MessagesSettings
from jackline.agents.messages.structured_answer import StructuredAnswer
from jackline.agents.outcome import Ending, Evidence
from jackline.agents.prices import in_dollars
from jackline.agents.runner import AgentTask, JsonObject
from jackline.autopsy.figures import counted
from jackline.failures import Kind

_GO_ON = (
    "Your answer was cut off at the output limit. Go on exactly where it stopped, without "
    "repeating anything."
)
_NO_WORDS = "You ended without a word. Give the result of the task now."
_NO_STRUCTURE = (
    f"You ended without calling {STRUCTURED_OUTPUT}, so there is no answer yet. "
    "Call it now with the final answer."
)


@dataclass(frozen=True, slots=True)
class CallModel:
    """Ask the model."""


@dataclass(frozen=True, slots=True)
class RunTools:
    """Answer the tool calls of the last answer; `faults` are those of the structured ones."""

    faults: tuple[tuple[str, JsonObject], ...] = ()


@dataclass(frozen=True, slots=True)
class SendNote:
    """Say this to the model, as a `note` line."""

    note: JsonObject


@dataclass(frozen=True, slots=True)
class AnswerReady:
    """The answer is there."""

    value: object
    text: str


@dataclass(frozen=True, slots=True)
class EndAgent:
    """It ends here."""

    ending: Ending
    evidence: Evidence
    text: str = ""
    forget_answer: bool = False


Move: TypeAlias = CallModel | RunTools | SendNote | AnswerReady | EndAgent


def next_move(
    task: AgentTask,
    talk: AgentConversation,
    settings: MessagesSettings,
    wanted: StructuredAnswer | None,
) -> Move:
    """What comes next."""
    if talk.calls:
        return _about_calls(talk, settings, wanted)
    if talk.stop_reason is None or talk.replied:
        return _ask(task, talk)
    return _about_words(task, talk, settings, wanted)


def _ask(task: AgentTask, talk: AgentConversation) -> Move:
    if task.max_turns is not None and talk.turns >= task.max_turns:
        turns = counted(task.max_turns, "turn")
        says = f"The agent used its {turns} without coming to an end."
        return EndAgent(Ending.TURNS, Evidence(says=says), talk.text)
    if task.max_dollars is not None and talk.cost is not None and talk.cost >= task.max_dollars:
        may, has = in_dollars(task.max_dollars), in_dollars(talk.cost)
        says = f"The agent may spend {may}, and has spent {has}."
        return EndAgent(Ending.BUDGET, Evidence(says=says), talk.text)
    return CallModel()


def _about_calls(
    talk: AgentConversation, settings: MessagesSettings, wanted: StructuredAnswer | None
) -> Move:
    given = [call for call in talk.calls if call.name == STRUCTURED_OUTPUT]
    if wanted is None or not given:
        return RunTools()
    if len(given) < len(talk.calls):
        early = f"Not taken: call {STRUCTURED_OUTPUT} alone, once you have seen the other results."
        return RunTools(tuple((call.id, _not_taken(early)) for call in given))
    faults = [wanted.fault(call.arguments) for call in given]
    for call, fault in zip(given, faults, strict=True):
        if fault is None:
            return AnswerReady(wanted.value(call.arguments), talk.text)
    if talk.reasks >= settings.most_reasks:
        return _invalid(given[-1], wanted, talk.reasks + 1)
    words = [f"Not valid: {fault}. Call it again with these faults corrected." for fault in faults]
    # Several at once are one try.
    told = [{**_not_taken(line), "reask": index == 0} for index, line in enumerate(words)]
    return RunTools(tuple(zip((call.id for call in given), told, strict=True)))


def _not_taken(words: str) -> JsonObject:
    return {"ok": False, "content": words, "name": STRUCTURED_OUTPUT, "ended_by": "not taken"}


def _about_words(
    task: AgentTask,
    talk: AgentConversation,
    settings: MessagesSettings,
    wanted: StructuredAnswer | None,
) -> Move:
    if talk.stop_reason == "refusal":
        evidence = Evidence(
            failure=Kind.CONTENT_POLICY.value, says="The model declined to answer.", attempts=1
        )
        return EndAgent(Ending.REFUSED, evidence, talk.text, forget_answer=True)
    cut = talk.stop_reason in CUT_OFF or bool(talk.cut_calls)
    if cut or talk.stop_reason == PAUSED:
        if talk.in_a_row > settings.most_continuations:
            times = counted(talk.in_a_row, "time")
            says = f"The answer was cut off at the output limit {times} in a row."
            return EndAgent(Ending.TURNS, Evidence(says=says), talk.text)
        return SendNote(_go_on(talk.cut_calls)) if cut else _ask(task, talk)
    if wanted is None and talk.text.strip():
        return AnswerReady(talk.text, talk.text)
    return _missing(talk, settings, wanted)


def _go_on(cut_calls: Sequence[str]) -> JsonObject:
    if not cut_calls:
        return {"text": _GO_ON, "goes_on": True}
    return {"text": cut_in_words(cut_calls)}


def cut_in_words(names: Sequence[str]) -> str:
    """Tell the model that these calls came without their whole input."""
    return (
        f"The input of your call of {', '.join(names)} was cut off at the output limit, so it did "
        "not run. Call it again with less at once, in several steps if need be."
    )


def _missing(
    talk: AgentConversation, settings: MessagesSettings, wanted: StructuredAnswer | None
) -> Move:
    if talk.reasks >= settings.most_reasks:
        what = "a word" if wanted is None else "the structured answer that was asked for"
        tries = talk.reasks + 1
        evidence = Evidence(
            failure=Kind.MISSING_STRUCTURED_OUTPUT.value,
            sub="absent",
            says=f"The model ended without {what}, {counted(tries, 'time')}.",
            attempts=tries,
        )
        return EndAgent(Ending.SCHEMA, evidence, talk.text)
    if wanted is None:
        return SendNote({"text": _NO_WORDS, "reask": True})
    return SendNote({"text": _NO_STRUCTURE, "reask": True, "structure": True})


def _invalid(call: TurnToolCall, wanted: StructuredAnswer, tries: int) -> EndAgent:
    evidence = Evidence(
        failure=Kind.MISSING_STRUCTURED_OUTPUT.value,
        sub="invalid",
        says=f"The structured answer was not valid, {counted(tries, 'time')}; the last faults: "
        f"{wanted.fault_for_people(call.arguments)}.",
        attempts=tries,
    )
    raw = msgspec.json.encode(wanted.value(call.arguments)).decode()
    return EndAgent(Ending.SCHEMA, evidence, raw)
