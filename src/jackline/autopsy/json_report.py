"""Render a report as one JSON document for programs.

Rules: (1) the document names its schema, and a change that breaks readers changes that name; (2)
times are ISO 8601 with their offset, durations are seconds; (3) token counts are lower bounds, and
their keys say so.
Not here: which content may be shown (report.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from jackline.autopsy.lapsed_caches import summed

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from jackline.autopsy.agent_reports import ReportRow
    from jackline.autopsy.causes import RetryPattern, Spending
    from jackline.autopsy.next_steps import ResumeOption
    from jackline.autopsy.report import AgentFate, CauseReport, WhyReport
    from jackline.transcripts.story import ReadProblem, SeenFailure

SCHEMA = "jackline.why/1"

Document: TypeAlias = dict[str, object]


def document(report: WhyReport) -> Document:
    """The whole report, ready for `json.dumps`."""
    return {
        "schema": SCHEMA,
        "synthetic": report.synthetic,
        "verdict": report.verdict,
        "now": iso(report.now),
        "agents_total": len(report.agents),
        "agents_by_fate": _by_fate(report),
        "tokens_at_least": report.tokens,
        "main_session_tokens_at_least": report.main_tokens,
        "causes": [_cause(described) for described in report.causes],
        "survived": [_cause(described) for described in report.survived],
        "told_to_user": [_told(row) for row in report.told_to_user],
        "prompt_caches": _caches(report),
        "resume": [_way(way) for way in report.ways],
        "agents": [_agent(agent) for agent in report.agents],
        "looked_at": {"files": report.files_read, "bytes": report.bytes_read},
        "troubles": [trouble_facts(trouble) for trouble in report.troubles],
    }


def iso(moment: datetime | None) -> str | None:
    """ISO 8601 with the offset, or null."""
    return None if moment is None else moment.isoformat()


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else round(duration.total_seconds(), 3)


def _by_fate(report: WhyReport) -> dict[str, int]:
    count: dict[str, int] = {}
    for agent in report.agents:
        count[agent.fate.value] = count.get(agent.fate.value, 0) + 1
    return count


def _cause(described: CauseReport) -> Document:
    cause = described.cause
    return {
        "rank": described.rank,
        "name": described.name,
        "failure": cause.failure.to_json(),
        "evidence": list(cause.failure.evidence),
        "status": cause.status,
        "resets_at": iso(cause.resets_at),
        "agents_stopped": len(cause.agents),
        "agents": [story.agent_id for story in cause.agents],
        "texts": [{"text": text, "count": count} for text, count in described.texts],
        "met": _rhythm(described.rhythm),
        "spending": _spending(described.spending),
        "stopped_agents_tokens_at_least": sum(story.tokens for story in cause.agents),
        "missed": [{"how": miss.value, "agents": count} for miss, count in described.misses],
        "told": [_told(row) for row in described.told],
        "what_to_do": list(described.advice),
    }


def _rhythm(rhythm: RetryPattern) -> Document:
    return {
        "times": rhythm.count,
        "first_at": iso(rhythm.first),
        "last_at": iso(rhythm.last),
        "span_s": _seconds(rhythm.span),
        "median_interval_s": _seconds(rhythm.median_interval),
        "longest_pause_s": _seconds(rhythm.longest_pause),
        "anything_waited": rhythm.waited,
    }


def _spending(spending: Spending | None) -> Document | None:
    if spending is None:
        return None
    return {
        "impossible_from": iso(spending.point),
        "tokens_before_at_least": spending.before,
        "tokens_after_at_least": spending.after,
        "agents_started_after": spending.started_after,
    }


def _told(row: ReportRow) -> Document:
    return {
        "times": row.count,
        "by": row.teller or None,
        "claim": row.claim or None,
        "marked_as_error": row.is_error,
        "text": row.text,
        "names": row.names,
        "so_one_believes_in": row.heard.value,
    }


def _caches(report: WhyReport) -> Document | None:
    sums = summed(report.lapsed_waits)
    if sums is None:
        return None
    return {
        "calls": sums.calls,
        "longest_wait_s": round(sums.longest_wait, 3),
        "tokens_written_again": sums.tokens,
        "dollars": sums.dollars,
        "dollars_warm": sums.dollars_warm,
    }


def _way(way: ResumeOption) -> Document:
    return {
        "command": way.command,
        "then": way.then,
        "agents": list(way.agents),
        "not_before": iso(way.not_before),
    }


def _agent(agent: AgentFate) -> Document:
    story = agent.story
    facts: Document = {
        "agent_id": story.agent_id,
        "session_id": story.session_id,
        "parent_id": story.parent_id,
        "run_id": story.run_id,
        "role": story.role.value,
        "agent_type": story.agent_type,
        "client": story.client,
        "client_version": story.client_version,
        "model": story.model,
        "fate": agent.fate.value,
        "cause": agent.cause,
        "started_at": iso(story.started_at),
        "ended_at": iso(story.ended_at),
        "turns": story.turns,
        "tool_calls": story.tool_calls,
        "tokens_at_least": story.tokens,
        "result_at": story.result_at,
        "transcript": str(story.path),
        "sightings": [_sighting(sighting) for sighting in story.sightings],
    }
    content = {"label": agent.label, "last_words": agent.last_words}
    return {**facts, **{key: value for key, value in content.items() if value is not None}}


def _sighting(sighting: SeenFailure) -> Document:
    return {
        "at": iso(sighting.at),
        "kind": sighting.failure.kind.value,
        "sub": sighting.failure.sub,
        "status": sighting.status,
        "text": sighting.text,
        "request_id": sighting.request_id,
        "fatal": sighting.fatal,
    }


def trouble_facts(trouble: ReadProblem) -> Document:
    """One thing that could not be read."""
    return {"path": str(trouble.path), "what": trouble.what, "count": trouble.count}
