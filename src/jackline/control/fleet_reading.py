"""Everything that `top` shows, as one document: verdict, lanes, agents, burn, runs, forecast.

Laws: (1) pure: facts come in, plain JSON data comes out, nothing is changed by looking; (2) long
lists are cut, who waits comes first, and the true length is told; (3) no prompt, answer, key or
token.
Not here: the page's document with its deltas (board.py), drawing (cli/top_drawing.py).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from jackline.control.board import Facts
from jackline.control.board_parts import lane_shown
from jackline.control.fleet import Doing, Key, Live, Member
from jackline.control.whole_seconds import whole_second

SCHEMA = "jackline.fleet/1"
_DIGITS = re.compile(r"([0-9]+)")
MOST_AGENTS = 500
_MOST_RUNS = 20
# An agent, or a run, that ended longer ago is nobody's present.
_PRESENT = 1800.0
_WAITS = (Doing.PARKED, Doing.DOWN, Doing.THROTTLED, Doing.QUEUED)
_ORDER = {
    doing: rank
    for rank, doing in enumerate(
        (Doing.FAILED, *_WAITS, Doing.ANSWERING, Doing.BETWEEN, Doing.QUIET, Doing.FINISHED)
    )
}


def fleet_reading(facts: Facts) -> dict[str, object]:
    """The document of now."""
    live = _by_agent(facts)
    rows = [_live_row(facts, key, call) for key, call in live.items()]
    for key in facts.fleet.known():
        member = facts.fleet.member(key)
        if key in live or member is None:
            continue
        if member.last_end > facts.at - _PRESENT or facts.flows.is_present(member.agent):
            rows.append(_resting_row(facts, key, member))
    counted = Counter(str(row["doing"]) for row in rows)
    chosen = sorted(rows, key=_urgency)[:MOST_AGENTS]
    chosen.sort(key=_place)
    head = facts.head
    return {
        "schema": SCHEMA,
        "at": facts.at,
        "verdict": head["verdict"],
        "url": head["url"],
        "calls_in_flight": head["calls_in_flight"],
        "calls_waiting": head["calls_waiting"],
        "lanes": list(facts.lanes.values()),
        "agents_by_state": {doing.value: counted[doing.value] for doing in Doing},
        "agents": chosen,
        "more_agents": len(rows) - len(chosen),
        "spend": _spend(facts),
        "runs": _runs(facts),
        "forecast": head["forecast"],
        "notes": list(_list(head.get("notes"))),
    }


def _spend(facts: Facts) -> dict[str, object]:
    today = facts.burn.since(facts.today)
    return {
        "dollars_today": round(today.dollars, 4),
        "dollars_per_hour": round(facts.burn.dollars_per_hour(facts.at), 4),
        "tokens_today": today.tokens,
        "unpriced_tokens_today": today.unpriced,
    }


def _by_agent(facts: Facts) -> dict[Key, Live]:
    found: dict[Key, Live] = {}
    for call in facts.live:
        key = (call.session, call.agent)
        known = found.get(key)
        # Of several calls that one which waits, since that is what holds the agent up.
        if key != ("", "") and (known is None or known.doing is Doing.ANSWERING):
            found[key] = call
    return found


def _live_row(facts: Facts, key: Key, call: Live) -> dict[str, object]:
    member = facts.fleet.member(key) or Member(call.session, call.agent, call.tag)
    row = _row(facts, key, member)
    now_row = {"tag": call.tag or member.tag, "model": call.model, "lane": lane_shown(call.lane)}
    until = None if call.until is None else whole_second(call.until)
    return row | now_row | _doing(call.doing, call.why, call.since, until)


def _resting_row(facts: Facts, key: Key, member: Member) -> dict[str, object]:
    doing, (why, until) = facts.flows.resting(member, facts.at)
    until = None if until is None else whole_second(until)
    return _row(facts, key, member) | _doing(doing, why, member.last_end, until)


def _row(facts: Facts, key: Key, member: Member) -> dict[str, object]:
    return {
        "session": key[0],
        "agent": key[1],
        "label": str(facts.flows.labels.get(key[1]) or "") if key[1] else "",
        "tag": member.tag,
        "model": member.model,
        "lane": lane_shown(member.lane),
        "calls": member.calls,
        "failed": member.failed,
        "tokens": member.tokens,
        "waited": round(member.waited, 1),
    }


def _doing(doing: Doing, why: str, since: float, until: int | None) -> dict[str, object]:
    return {"doing": doing.value, "why": why, "since": round(since, 1), "until": until}


def _place(row: Mapping[str, object]) -> tuple[object, ...]:
    """By session, the main thread first, then by name, in which 9 comes before 10."""
    name = _DIGITS.split(str(row["label"] or row["agent"]))
    numbered = [(int(part), "") if part.isdigit() else (-1, part) for part in name]
    return str(row["session"]), row["agent"] != "", numbered


def _urgency(row: Mapping[str, object]) -> int:
    return _ORDER[Doing(str(row["doing"]))]


def _runs(facts: Facts) -> list[dict[str, object]]:
    told = [dict(run) for run in facts.flows.runs.values() if isinstance(run, Mapping)]
    present = [
        run
        for run in told
        if not isinstance(run.get("ended_at"), float | int)
        or _number(run["ended_at"]) > facts.at - _PRESENT
    ]
    for run in present:
        run.pop("calls", None)
    return present[:_MOST_RUNS]


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else []
