"""Render a report as one JSON document for programs.

Rules: (1) the document names its schema, and a change that breaks readers changes that name; (2)
times are ISO 8601 with their offset, durations are seconds; (3) token counts are lower bounds, and
their keys say so.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeAlias

from jackline.autopsy.lapsed_caches import WaitTotals

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime, timedelta

    from jackline.autopsy.agent_reports import ReportRow
    from jackline.autopsy.report import AgentFate, CauseReport, WhyReport
    from jackline.transcripts.story import ReadProblem

SCHEMA = "jackline.why/2"

Document: TypeAlias = dict[str, object]


def document(report: WhyReport) -> Document:
    """The whole report, ready for `json.dumps`."""
    totals = WaitTotals.of(report.lapsed_waits)
    return {
        "schema": SCHEMA,
        "synthetic": report.synthetic,
        "verdict": report.verdict,
        "now": iso(report.now),
        "agents_total": len(report.agents),
        "agents_by_fate": dict(Counter(agent.fate.value for agent in report.agents)),
        "tokens_at_least": report.tokens,
        "main_session_tokens_at_least": report.main_tokens,
        "causes": [_cause(described) for described in report.causes],
        "survived": [_cause(described) for described in report.survived],
        "reported_to_user": _reported(report.reported_to_user),
        "prompt_caches": None
        if totals is None
        else {
            "calls": totals.calls,
            "longest_wait_s": round(totals.longest_wait, 3),
            "tokens_written_again": totals.tokens,
            "dollars": totals.dollars,
            "dollars_warm": totals.dollars_warm,
        },
        "resume": [
            {
                "command": option.command,
                "then": option.then,
                "agents": list(option.agents),
                "not_before": iso(option.not_before),
            }
            for option in report.resume_options
        ],
        "agents": [_agent(agent) for agent in report.agents],
        "looked_at": {"files": report.files_read, "bytes": report.bytes_read},
        "problems": problem_documents(report.problems),
    }


def iso(moment: datetime | None) -> str | None:
    """ISO 8601 with the offset, or null."""
    return None if moment is None else moment.isoformat()


def problem_documents(problems: Iterable[ReadProblem]) -> list[Document]:
    """Everything that could not be read."""
    return [{**asdict(problem), "path": str(problem.path)} for problem in problems]


def _cause(described: CauseReport) -> Document:
    cause, pattern, spending = described.cause, described.pattern, described.spending

    def seconds(duration: timedelta | None) -> float | None:
        return None if duration is None else round(duration.total_seconds(), 3)

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
        "occurred": {
            "times": pattern.count,
            "first_at": iso(pattern.first),
            "last_at": iso(pattern.last),
            "span_s": seconds(pattern.span),
            "median_interval_s": seconds(pattern.median_interval),
            "longest_pause_s": seconds(pattern.longest_pause),
            "anything_waited": pattern.waited,
        },
        "spending": None
        if spending is None
        else {
            "impossible_from": iso(spending.point),
            "tokens_before_at_least": spending.before,
            "tokens_after_at_least": spending.after,
            "agents_started_after": spending.started_after,
        },
        "stopped_agents_tokens_at_least": sum(story.tokens for story in cause.agents),
        "missed": [{"how": miss.value, "agents": count} for miss, count in described.misses],
        "reported": _reported(described.reported),
        "what_to_do": list(described.advice),
    }


def _reported(rows: Iterable[ReportRow]) -> list[Document]:
    return [
        {
            "times": row.count,
            "by": row.reporter or None,
            "claim": row.claim or None,
            "marked_as_error": row.is_error,
            "text": row.text,
            "names": row.names,
            "suggests": row.outcome.value,
        }
        for row in rows
    ]


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
        "failures": [
            {
                "at": iso(seen.at),
                "kind": seen.failure.kind.value,
                "sub": seen.failure.sub,
                "status": seen.status,
                "text": seen.text,
                "request_id": seen.request_id,
                "fatal": seen.fatal,
            }
            for seen in story.failures
        ],
    }
    content = {"label": agent.label, "last_words": agent.last_words}
    return {**facts, **{key: value for key, value in content.items() if value is not None}}
