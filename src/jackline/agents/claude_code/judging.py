"""Judge what a run of Claude Code came to.

Laws: (1) no result, no completion; (2) `is_error` and a synthetic error decide, never `subtype`;
(3) a "success" without a reason to stop, without the answer that the schema asks for, or with
agents lost on the way is none; (4) words are judged by `failures` alone.
Not here: collecting what is judged (printed.py), asking again (process/carrying.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from jackline.agents.claude_code.printed import Printed, Result
from jackline.agents.outcome import Ending
from jackline.agents.process.program import Ended
from jackline.agents.process.verdict import Broken, Done, Failed, Incomplete, Verdict
from jackline.agents.process.words import exit_in_words, failure_in_words
from jackline.failures import Failure, Json, Kind, Observation, Where, classify

_PROVIDER = "anthropic"
_OWED = "it gave no structured answer"


def asks_again(fault: str | None) -> str:
    """What to say to an agent that owes its structured answer, or gave one with a fault."""
    if fault is None:
        return (
            "Your work has ended without its answer. Call the tool StructuredOutput now, with the "
            "answer of the task in the form that its schema asks for. Do none of the work again."
        )
    return (
        f"The answer that you gave is not what its schema asks for: {fault}. Call the tool "
        "StructuredOutput again with the corrected answer. Do none of the work again."
    )


def judge(printed: Printed, ended: Ended, *, schema: bool, now: datetime) -> Verdict:
    """What the run came to."""
    result = printed.result
    if result is None:
        return _without_result(printed, ended, now)
    if result.is_error or printed.error is not None:
        return _failed(printed, result, ended, now)
    if ended.exit_code != 0:
        return Broken(_exit(ended, "after its result"))
    if schema and result.given is None:
        return Incomplete(asks_again(None), _OWED)
    if not schema and result.stop_reason == "refusal":
        body: Json = {"message": {"stop_reason": result.stop_reason}}
        return _failure(printed, Observation(Where.TRANSCRIPT, _PROVIDER, 200, {}, body), now)
    if not schema and result.stop_reason in (None, "max_tokens"):
        # The client takes a stream that ended in order for whole, also when its end is missing.
        return _failure(printed, Observation.of_stream(b"", provider=_PROVIDER), now)
    lost = {**printed.lost, **printed.agents}
    if lost:
        return _lost(lost)
    return Done(result.text, result.given)


def _without_result(printed: Printed, ended: Ended, now: datetime) -> Verdict:
    if printed.error is None:
        return Broken(_exit(ended, "before it gave a result"))
    return _failure(printed, _observed(printed, None, None), now)


def _failed(printed: Printed, result: Result, ended: Ended, now: datetime) -> Verdict:
    if result.is_error and result.subtype == "error_max_structured_output_retries":
        return Incomplete(asks_again(None), _OWED, raw=printed.offered)
    verdict = _failure(printed, _observed(printed, result, result.status), now)
    if verdict.failure.kind is Kind.NOT_A_FAILURE:
        return Broken(_exit(ended, "with an error that it did not explain"))
    return verdict


def _observed(printed: Printed, result: Result | None, status: int | None) -> Observation:
    error = printed.error
    text = error.text if error is not None else "" if result is None else result.text
    body: Json = None
    if error is None and result is not None:
        body = {"type": "result", "subtype": result.subtype, "is_error": True}
    elif error is not None and not text:
        body = {"error": error.tag}
    return Observation(Where.TRANSCRIPT, _PROVIDER, status, _headers(printed), body, text or None)


def _headers(printed: Printed) -> Mapping[str, str]:
    """The window that refused, if it did; one that only warns is not why this run ended."""
    quota = printed.quota
    return quota.as_headers() if quota is not None and quota.status == "rejected" else {}


def _failure(printed: Printed, seen: Observation, now: datetime) -> Failed:
    failure: Failure = classify(seen, now=now)
    error = printed.error
    return Failed(
        failure,
        failure_in_words(failure, seen.text),
        seen.status,
        (error.request_id if error is not None else None) or printed.last_request_id,
        printed.retries + 1,
    )


def _lost(agents: Mapping[str, str]) -> Incomplete:
    listed = ", ".join(sorted(agents))
    return Incomplete(
        "Agents that you had started in the background were stopped before they had finished, and "
        f"their results are lost: {listed}. Look at what they have done, finish their work (an "
        "agent can be gone on with by SendMessage to its id), and then give your answer again.",
        f"{len(agents)} of its own agents were stopped before they had finished",
        Ending.TOOL_ERROR,
    )


def _exit(ended: Ended, when: str) -> str:
    return exit_in_words("Claude Code", ended, when)
