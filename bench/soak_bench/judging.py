"""Decide from ledger, records and samples which promises a soak has kept.

Rules: pure; nothing is judged by how long it took; what could not be measured is told as such and
breaks nothing; every broken promise shows what was seen.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gateway_bench.endurance import slope
from jackline.simulator.ledger import RequestOutcome
from soak_bench.agents import Log
from soak_bench.flow_runs import RunLog
from soak_bench.gateway_process import JOURNAL_BYTES, Sample
from soak_bench.provider import Kill, Question, SoakProvider

MEGA = 1 << 20
# The first part of the longest life fills caches and pools.
_WARM_UP = 0.25
_LEAST_SAMPLES = 12
_MEMORY_RATIO, _MEMORY_SLACK = 1.10, 8 * MEGA
_COUNT_RATIO, _COUNT_SLACK = 1.25, 24
# A journal is cut when it has grown beyond its size, and its write-ahead log comes on top.
_JOURNAL_MOST = 2 * JOURNAL_BYTES
_FLOW_BYTES_PER_AGENT, _FLOW_SLACK = 64 << 10, 8 * MEGA
_OTHER_MOST = 16 * MEGA
_EXAMPLES = 10


@dataclass(frozen=True, slots=True)
class Promise:
    """One line of the verdict; `kept` is None when it could not be measured."""

    name: str
    seen: str
    limit: str
    kept: bool | None
    examples: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Found:
    """What was found when all was over."""

    used: Sequence[str]
    """Every use of a tool, a line each."""
    log_errors: Sequence[str]
    left_behind: int


class Completed(NamedTuple):
    """One whole answer of the provider."""

    arrived: float
    question: Question


def promises(
    provider: SoakProvider,
    agents: Log,
    runs: RunLog,
    samples: Sequence[Sample],
    found: Found,
) -> list[Promise]:
    """All promises, in the order of the table."""
    beyond, in_hand = paid_again(completed(provider), provider.kills)
    return [
        _none("conversations left without an answer", agents.begun - agents.finished, agents.begun),
        _none("runs that did not finish", runs.begun - runs.finished, runs.begun),
        _none("wrong or mixed-up answers", agents.wrong, agents.answered),
        _none("runs with a wrong result", runs.wrong, runs.finished),
        _none(
            "answers paid for twice, but turns in hand at a kill", beyond, provider.ledger.useful
        ),
        _none("questions sent after their answer was there", _asked_late(provider, agents)),
        _none("finished agents of runs asked again", _asked_again(provider, runs), runs.agents),
        _none("uses of a tool that ran twice", _twice(found.used), len(found.used)),
        _none("errors that reached an agent, but at a kill", agents.unexpected, agents.answered),
        _none("runs that ended by themselves, unfinished", runs.unexpected, runs.begun),
        _none("unexpected lines in logs", found.log_errors),
        _none("processes left behind", found.left_behind),
        Promise("turns in hand at a kill, paid for again", f"{in_hand:,}", "documented", None),
        *_flat(samples),
        *_bounded(samples, runs),
    ]


# --- what was paid for -----------------------------------------------------------------------


def completed(provider: SoakProvider) -> list[Completed]:
    """Every whole answer to a known question, in order of arrival."""
    done = (entry for entry in provider.ledger if entry.outcome is RequestOutcome.COMPLETED)
    named = ((entry.arrived, provider.question(entry)) for entry in done)
    return [Completed(at, question) for at, question in named if question is not None]


def paid_again(answers: Iterable[Completed], kills: Sequence[Kill]) -> tuple[list[str], int]:
    """Answers that were paid for again: without excuse, and how many because of a kill.

    A kill excuses a repetition when it lies between both requests and the first of them was the
    latest that its agent had asked by then: the turn in hand.
    """
    by_label: dict[str, list[Completed]] = {}
    for answer in answers:
        by_label.setdefault(answer.question.label, []).append(answer)
    beyond: list[str] = []
    excused = 0
    for label, got in by_label.items():
        own = [kill for kill in kills if kill.concerns(label)] if len(got) > 1 else []
        latest: dict[Question, Completed] = {}
        for answer in got:
            before = latest.get(answer.question)
            if before is not None:
                if _in_hand(before, answer, got, own):
                    excused += 1
                else:
                    beyond.append(
                        f"{answer.question} at {before.arrived:.1f} and {answer.arrived:.1f}"
                    )
            latest[answer.question] = answer
    return beyond, excused


def _in_hand(
    before: Completed, again: Completed, got: Sequence[Completed], kills: Iterable[Kill]
) -> bool:
    return any(
        max(one.arrived for one in got if one.arrived <= kill.over) == before.arrived
        for kill in kills
        if before.arrived <= kill.over and kill.begun <= again.arrived
    )


def _asked_late(provider: SoakProvider, agents: Log) -> list[str]:
    """Requests for an answer that its agent had received before."""
    found = []
    for entry in provider.ledger:
        question = provider.question(entry)
        if question is not None and entry.arrived > agents.received.get(question, entry.arrived):
            found.append(f"{question} at {entry.arrived:.1f}")
    return found


def _asked_again(provider: SoakProvider, runs: RunLog) -> list[str]:
    """Requests of agents that the store had called finished."""
    finished: dict[str, float] = {}
    for at, labels in runs.kept:
        for label in labels:
            finished.setdefault(label, at)
    found = []
    for entry in provider.ledger:
        question = provider.question(entry)
        if question is not None and entry.arrived > finished.get(question.label, entry.arrived):
            found.append(f"{question} at {entry.arrived:.1f}")
    return found


def _twice(used: Iterable[str]) -> list[str]:
    return [line for line, count in Counter(used).items() if count > 1]


# --- what stays flat -------------------------------------------------------------------------


def longest_life(samples: Sequence[Sample]) -> list[Sample]:
    """The samples of the process that lived longest, without its warm-up."""
    lives: dict[int, list[Sample]] = {}
    for sample in samples:
        lives.setdefault(sample.pid, []).append(sample)
    longest = max(lives.values(), key=len, default=[])
    return longest[int(len(longest) * _WARM_UP) :]


def _flat(samples: Sequence[Sample]) -> list[Promise]:
    life = longest_life(samples)
    marks = [(one.calls, one.resident) for one in life if one.resident is not None]
    growth = slope(marks) if len({calls for calls, _ in marks}) > 1 else None
    told = "" if growth is None else f", {growth:+.0f} bytes a call"
    memory = [size / MEGA for _, size in marks]
    slack = _MEMORY_SLACK / MEGA
    files = [float(one.files) for one in life if one.files is not None]
    threads = [float(one.threads) for one in life if one.threads is not None]
    return [
        _steady("memory of the gateway, MB", memory, _MEMORY_RATIO, slack, told),
        _steady("open files of the gateway", files, _COUNT_RATIO, _COUNT_SLACK),
        _steady("threads of the gateway", threads, _COUNT_RATIO, _COUNT_SLACK),
    ]


def _steady(
    name: str, values: Sequence[float], ratio: float, slack: float, told: str = ""
) -> Promise:
    """Whether the last third is no higher than the first third, but for a margin."""
    limit = f"first third × {ratio:g} + {slack:g}"
    if len(values) < _LEAST_SAMPLES:
        return Promise(name, "too few samples", limit, None)
    third = len(values) // 3
    first, last = statistics.median(values[:third]), statistics.median(values[-third:])
    seen = f"{first:.0f} → {last:.0f}{told}"
    return Promise(name, seen, limit, last <= first * ratio + slack)


def _bounded(samples: Sequence[Sample], runs: RunLog) -> list[Promise]:
    if not samples:
        return []
    journal = max(one.journal for one in samples)
    other = max(one.other for one in samples)
    flows = samples[-1].flows
    most = _FLOW_SLACK + _FLOW_BYTES_PER_AGENT * (runs.agents + 1)
    return [
        _at_most("journal, MB", journal, _JOURNAL_MOST),
        _at_most("store of runs, MB", flows, most),
        _at_most("all else in the state folder, MB", other, _OTHER_MOST),
    ]


def _at_most(name: str, seen: int, most: int) -> Promise:
    return Promise(name, f"{seen / MEGA:.1f}", f"≤ {most / MEGA:.0f}", seen <= most)


def _none(name: str, seen: Sequence[str] | int, among: int | None = None) -> Promise:
    """A promise that something never happens."""
    count = seen if isinstance(seen, int) else len(seen)
    told = f"{count:,}" if among is None else f"{count:,} of {among:,}"
    examples = [] if isinstance(seen, int) else list(seen[:_EXAMPLES])
    return Promise(name, told, "0", count == 0, examples)


# --- the table -------------------------------------------------------------------------------


def markdown(rows: Iterable[Promise]) -> str:
    """The verdict as a table, with what was seen of broken promises below."""
    rows = list(rows)
    lines = ["| promise | seen | limit | kept |", "|---|--:|---|---|"]
    words = {True: "yes", False: "**NO**", None: "–"}
    lines += [f"| {row.name} | {row.seen} | {row.limit} | {words[row.kept]} |" for row in rows]
    for row in rows:
        if row.examples:
            lines += ["", f"{row.name}:", *(f"- {one}" for one in row.examples)]
    return "\n".join(lines)
