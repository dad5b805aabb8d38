"""Turn one observation into one `Failure`: weigh the signals in their order, strongest first.

Rules: (1) total: any input gives a result, in time linear in its size; (2) pure: the same
observation and the same `now` give the same result; (3) quota and billing never come out as
`retry_same`; (4) a wait of more than two minutes on a rate limit is a window, not a burst; (5) of
a status page the incidents count, not its traffic light, which lags; a page only confirms, it
never makes a failure of calls that succeed, and only an incident's name or text names the model.
Not here: how each family of failures reads (rules/), times in texts (resets.py), fetching a
status page.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from jackline.failures.evidence import FailureSignals, read
from jackline.failures.failure import Failure, Kind, Scope
from jackline.failures.observation import Json, Observation, Where
from jackline.failures.resets import find_primary_reset, find_reset, find_wait
from jackline.failures.rules import agents, hints, limits, outages, refusals
from jackline.failures.rules import limits as money
from jackline.failures.rules import refusals as credentials
from jackline.failures.rules.rule import KIND_DEFAULTS, FailureRule, Verdict
from jackline.failures.waits import (
    SPEND_CAP_REASONS,
    UNIFIED,
    announced_window,
    body_reset,
    body_wait,
    codex_window,
    header_wait,
    is_long,
    span,
    spent_window,
    within_reach,
)

_TROUBLE = re.compile(
    r"elevated|error|outage|degraded|unavailable|failing|failures?|latency|slow|disruption|down\b|timeouts?"
    r"|increased|interruption"
)
_OVER = re.compile(
    r"^(?:this incident has been )?resolved|has been resolved|all systems operational|completed"
)
_MODEL = re.compile(
    r"\b(?:opus|sonnet|haiku|fable|mythos|gpt|gemini|o\d)\b|\b(?:many|multiple|all) models"
)
_LOGIN = re.compile(
    r"authentication errors|auth(?:entication)? (?:issue|fail|outage)|(?:logging|signing) in"
)
_BROKEN_COMPONENT = frozenset({"partial_outage", "major_outage", "degraded_performance"})
_CLOSED = frozenset({"resolved", "postmortem", "completed"})


def judge_page(observation: Observation, reading: FailureSignals) -> Verdict:
    """What the page says about calls made now."""
    body = observation.body
    if isinstance(body, dict) and ("incidents" in body or "components" in body):
        return _judge_summary(body)
    if _OVER.search(reading.text) or not _TROUBLE.search(reading.text):
        return Verdict(Kind.NOT_A_FAILURE, "incident")
    return _incident(reading.text)


def _judge_summary(page: dict[str, Json]) -> Verdict:
    open_incidents = [
        i for i in _dicts(page.get("incidents")) if str(i.get("status")) not in _CLOSED
    ]
    broken = [
        c for c in _dicts(page.get("components")) if str(c.get("status")) in _BROKEN_COMPONENT
    ]
    texts = [_told(incident) for incident in open_incidents]
    failing = [text for text in texts if _TROUBLE.search(text)]
    if not failing and not broken:
        return Verdict(Kind.NOT_A_FAILURE, "incident")
    return _incident(" · ".join(failing))


def _incident(text: str) -> Verdict:
    if _LOGIN.search(text):
        return Verdict(Kind.AUTH, "outage", Scope.UPSTREAM, retry_same=True)
    scope = Scope.MODEL if _MODEL.search(text) else Scope.UPSTREAM
    return Verdict(Kind.UPSTREAM_5XX, "incident", scope)


def _told(incident: dict[str, Json]) -> str:
    updates = _dicts(incident.get("incident_updates"))
    newest = str(updates[0].get("body", "")) if updates else ""
    return f"{incident.get('name', '')} {newest}".lower()


def _dicts(value: Json) -> list[dict[str, Json]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


# The order is the meaning. Hopeless before hopeful; the API's own word before the client's text;
# what names its cause before what only names its status.
_TABLES: tuple[tuple[FailureRule, ...], ...] = (
    money.BILLING,
    limits.QUOTA,
    limits.PROJECT_QUOTA,
    outages.BORDER,
    refusals.POLICY,
    limits.SHARED_CAPACITY,
    outages.OVERLOAD,
    limits.RATE,
    credentials.HEALING_AUTH,
    refusals.MODEL,
    refusals.INVALID,
    credentials.AUTH,
    refusals.OTHERWISE_INVALID,
    agents.STRUCTURED_OUTPUT,
    outages.LATE,
    outages.STREAM,
    outages.BROKEN,
    outages.PATH,
    outages.TIMEOUT,
    outages.UNREACHABLE,
)
_FIRST: tuple[tuple[FailureRule, ...], ...] = (agents.CANCELS, agents.TOOLS)
_PARKS = frozenset({Kind.ACCOUNT_QUOTA, Kind.BILLING})
# Clients print a reset to the minute or to ten minutes.
_ROUNDED = timedelta(minutes=10)
_ENDS_OF_STREAM = frozenset({"message_stop", "response.completed", "[DONE]", "response.incomplete"})


@dataclass(frozen=True, slots=True)
class _Decision:
    verdict: Verdict
    evidence: tuple[str, ...]
    resets_at: datetime | None = None
    guess: bool = False


def classify(observation: Observation, *, now: datetime) -> Failure:
    """What `observation` means; the zone of `now` is the host's, for texts that name none."""
    if now.tzinfo is None:
        raise ValueError("classify needs an aware now: its zone is the host's")
    reading = read(observation)
    wait = _longest(
        header_wait(reading.headers, now),
        body_wait(reading.payload.numbers, now),
        find_wait(reading.prose),
    )
    decision = _escalated(_decide(observation, reading, now), reading, wait)
    return _failure(decision, reading, wait, now)


def _decide(observation: Observation, reading: FailureSignals, now: datetime) -> _Decision:
    if reading.where is Where.STATUSPAGE:
        return _Decision(judge_page(observation, reading), ("status page",))
    decision = _by_structure(reading)
    if decision is None and not reading.failed_status:
        decision = _by_rules((agents.NOTICES,), reading)
    if decision is None:
        decision = _by_rules(_FIRST, reading)
    if decision is None and not _succeeded(reading):
        decision = _by_headers(reading, now)
    if decision is None:
        decision = _by_rules(_TABLES, reading)
    return decision or _guess(reading)


def _by_structure(reading: FailureSignals) -> _Decision | None:
    """What the shape of the payload settles before any word is read."""
    payload = reading.payload
    if "iserror" in payload.keys or ("tool_result" in reading.words and "is_error" in payload.keys):
        return _Decision(Verdict(Kind.TOOL_ERROR), ("a tool's result, marked as an error",))
    if "structured_output" in payload.nulls and "result" in reading.words:
        missing = Verdict(Kind.MISSING_STRUCTURED_OUTPUT, "absent")
        return _Decision(missing, ("a result whose structured_output is null",))
    if reading.where is Where.SSE and payload.events and not payload.marked_error:
        if _ENDS_OF_STREAM & set(payload.events):
            return _by_rules((refusals.POLICY,), reading) or _FINE
        if "finish_reason" in payload.keys:
            return None
        return _Decision(
            Verdict(Kind.TRUNCATED_STREAM, "no_message_stop"), ("stream without its last event",)
        )
    may_be_fine = _succeeded(reading) or reading.where in (Where.TRANSCRIPT, Where.SSE)
    if may_be_fine and payload.is_json and not payload.marked_error and _is_success(reading):
        return _FINE
    if reading.outer_status == 200 and reading.where is Where.HTTP:
        return _odd_success(reading)
    return None


_FINE = _Decision(Verdict(Kind.NOT_A_FAILURE), ("a complete answer",))


def _succeeded(reading: FailureSignals) -> bool:
    return reading.outer_status is not None and 200 <= reading.outer_status < 300


def _is_success(reading: FailureSignals) -> bool:
    words, keys = reading.words, reading.payload.keys
    if "rejected" in words or any(word.endswith("exception") for word in words):
        return False
    if _by_rules((refusals.POLICY,), reading) is not None:
        return False
    if "result" in words:
        return "success" in words and not reading.payload.numbers.get("api_error_status")
    return bool(keys & {"choices", "candidates", "content", "output", "usage", "message"}) and not (
        keys & {"is_error", "code", "blockreason"}
    )


def _odd_success(reading: FailureSignals) -> _Decision | None:
    """A 200 whose body is a page, or nothing."""
    if reading.payload.html:
        portal = Verdict(
            Kind.NETWORK_EDGE, "captive_portal", retry_same=False, failover_helps=False
        )
        return _Decision(portal, ("HTTP 200 with a web page",))
    if not reading.payload.empty:
        return None
    if not reading.body_seen:
        return _FINE
    return _Decision(Verdict(Kind.NETWORK_EDGE, "malformed_200"), ("HTTP 200, empty body",))


def _by_rules(
    tables: tuple[tuple[FailureRule, ...], ...], reading: FailureSignals
) -> _Decision | None:
    for table in tables:
        for rule in table:
            evidence = rule.evidence(reading)
            if evidence is not None:
                return _Decision(rule.verdict, (evidence,))
    return None


def _by_headers(reading: FailureSignals, now: datetime) -> _Decision | None:
    headers = reading.headers
    reason = headers.get(f"{UNIFIED}overage-disabled-reason", "")
    if reason in SPEND_CAP_REASONS or headers.get(f"{UNIFIED}overage-daily-cap-paused") == "true":
        window = spent_window(headers, now)
        return _Decision(
            Verdict(Kind.BILLING, "spend_cap"),
            (f"{UNIFIED}overage-disabled-reason: {reason}",),
            window.resets_at if window else None,
        )
    if reason == "fetch_error":
        return _Decision(
            Verdict(Kind.SERVER_THROTTLE, "limit_check"), (f"{UNIFIED}…: fetch_error",)
        )
    window = spent_window(headers, now) if reading.status in (None, 429) else None
    window = (
        window
        or codex_window(headers, now)
        or announced_window(reading.words, reading.payload.numbers, now)
    )
    if window is not None and not _names_money(reading):
        scope = Scope.MODEL if window.sub == "weekly_model" else None
        return _Decision(
            Verdict(Kind.ACCOUNT_QUOTA, window.sub, scope), (window.signal,), window.resets_at
        )
    return _by_vendor_fields(reading)


def _names_money(reading: FailureSignals) -> bool:
    return _by_rules((money.BILLING,), reading) is not None


def _by_vendor_fields(reading: FailureSignals) -> _Decision | None:
    quota_ids = sorted(word for word in reading.words if "per" in word and len(word) > 15)
    if any("perday" in word for word in quota_ids):
        return _Decision(
            Verdict(Kind.ACCOUNT_QUOTA, "daily", Scope.MODEL),
            tuple(f"quotaId {w}" for w in quota_ids),
        )
    if any("perminute" in word for word in quota_ids):
        sub = "tpm" if any("token" in word for word in quota_ids) else "rpm"
        return _Decision(
            Verdict(Kind.RATE_LIMIT, sub, Scope.MODEL), tuple(f"quotaId {w}" for w in quota_ids)
        )
    window = next(
        (w for w in ("weekly", "daily", "monthly") for word in reading.words if w in word), None
    )
    if window is not None and any(m in word for word in reading.words for m in ("limit", "quota")):
        return _Decision(Verdict(Kind.ACCOUNT_QUOTA, window), (f"a code that says {window}",))
    if reading.headers.get("x-ratelimit-exceeded", "").startswith("quota"):
        return _Decision(Verdict(Kind.ACCOUNT_QUOTA, "monthly"), ("x-ratelimit-exceeded",))
    if reading.headers.get("cf-mitigated") == "challenge":
        return _Decision(Verdict(Kind.NETWORK_EDGE, "cf_challenge"), ("cf-mitigated: challenge",))
    if "x-deny-reason" in reading.headers:
        denied = Verdict(Kind.NETWORK_EDGE, "egress_policy", retry_same=False, failover_helps=False)
        return _Decision(denied, (f"x-deny-reason: {reading.headers['x-deny-reason']}",))
    return None


def _guess(reading: FailureSignals) -> _Decision:
    """The last resort: single words, the status alone, or the mere fact that it was an error."""
    hint = _by_rules((hints.LAST_RESORT,), reading)
    if hint is not None:
        return replace(hint, guess=True)
    status = reading.status
    evidence = (f"status {status}",) if status is not None else ("nothing recognised",)
    return _Decision(_verdict_of_status(reading), evidence, guess=True)


def _verdict_of_status(reading: FailureSignals) -> Verdict:  # noqa: PLR0911 -- a table of statuses
    match reading.status:
        case 401:
            return Verdict(Kind.AUTH, "invalid")
        case 403 if reading.payload.html or (
            reading.body_seen
            and not reading.payload.is_json
            and "request-id" not in reading.headers
        ):
            return Verdict(Kind.NETWORK_EDGE, "region_block", retry_same=False)
        case 403:
            return Verdict(Kind.AUTH, "forbidden")
        case 404 if "model" in reading.text:
            return Verdict(Kind.MODEL_NOT_FOUND)
        case 404 | 405:
            return Verdict(Kind.INVALID_REQUEST, "endpoint", failover_helps=True)
        case 413:
            return Verdict(Kind.INVALID_REQUEST, "request_too_large")
        case 424:
            return Verdict(Kind.UPSTREAM_5XX, scope=Scope.MODEL)
        case 429:
            sub = "burst" if reading.provider == "anthropic" else None
            return Verdict(Kind.SERVER_THROTTLE, sub)
        case 451:
            return Verdict(Kind.NETWORK_EDGE, "region_block", retry_same=False)
        case int(status) if 400 <= status < 500:
            return Verdict(Kind.INVALID_REQUEST)
        case int(status) if status >= 500:
            return Verdict(Kind.UPSTREAM_5XX)
        case _:
            return _verdict_without_status(reading)


def _verdict_without_status(reading: FailureSignals) -> Verdict:
    if "rate_limit_error" in reading.words or "rate_limit" in reading.words:
        return Verdict(Kind.SERVER_THROTTLE)
    if reading.where is Where.SSE and reading.payload.empty:
        return Verdict(Kind.TRUNCATED_STREAM, "empty")
    if reading.where is Where.EXCEPTION:
        return Verdict(Kind.TOOL_ERROR, "unrecognised", Scope.CLIENT)
    return Verdict(Kind.NOT_A_FAILURE, "unrecognised")


def _escalated(decision: _Decision, reading: FailureSignals, wait: timedelta | None) -> _Decision:
    """Correct the verdict by how long, and whether at all, the source says to wait."""
    verdict = decision.verdict
    guessed = verdict.kind is Kind.SERVER_THROTTLE and decision.guess
    if is_long(wait) and (verdict.kind is Kind.RATE_LIMIT or guessed):
        sub = "daily" if wait is not None and wait >= timedelta(hours=12) else "unknown_window"
        return _Decision(
            Verdict(Kind.ACCOUNT_QUOTA, sub, verdict.scope),
            (*decision.evidence, f"asks to wait {wait}: a window, not a burst"),
            decision.resets_at,
        )
    if verdict.sub == "unknown_window" and decision.resets_at is None:
        return replace(decision, verdict=replace(verdict, sub=_window_of(wait)))
    if reading.headers.get("x-should-retry") == "false" and KIND_DEFAULTS[verdict.kind][1]:
        return _Decision(
            replace(verdict, retry_same=False, sub=verdict.sub or "declined"),
            (*decision.evidence, "x-should-retry: false"),
            decision.resets_at,
        )
    return decision


def _window_of(wait: timedelta | None) -> str:
    """The smallest window that a wait of this length fits into."""
    if wait is None or wait <= timedelta(hours=24):
        return "unknown_window"
    return "weekly" if wait <= timedelta(days=7.5) else "monthly"


def _failure(
    decision: _Decision, reading: FailureSignals, wait: timedelta | None, now: datetime
) -> Failure:
    verdict = decision.verdict
    scope, retry_same, failover_helps = KIND_DEFAULTS[verdict.kind]
    parks = verdict.kind in _PARKS
    if verdict.retry_same is not None and not parks:
        retry_same = verdict.retry_same
    if verdict.failover_helps is not None:
        failover_helps = verdict.failover_helps
    status = () if reading.status is None else (f"status {reading.status}",)
    resets_at = within_reach(_reset(decision, reading, wait, now), now) if parks else None
    is_duration = wait is not None and resets_at is not None and resets_at - now == wait
    return Failure(
        kind=verdict.kind,
        sub=verdict.sub,
        scope=verdict.scope or scope,
        retry_same=retry_same,
        failover_helps=failover_helps,
        retry_after=None if verdict.kind is Kind.NOT_A_FAILURE else wait,
        resets_at=resets_at,
        evidence=tuple(dict.fromkeys((*decision.evidence, *status))),
        resets_in=wait if is_duration else None,
    )


def _reset(
    decision: _Decision, reading: FailureSignals, wait: timedelta | None, now: datetime
) -> datetime | None:
    """When the window refills: an epoch is exact, but the text knows the reader's zone."""
    find = find_primary_reset if decision.verdict.kind is Kind.BILLING else find_reset
    told = find(reading.prose, now)
    exact = decision.resets_at or body_reset(reading.payload.numbers, now)
    if exact is None:
        return told or (now + wait if wait is not None else None)
    if told is not None and abs(span(exact, told)) <= _ROUNDED:
        return exact.astimezone(told.tzinfo)
    return exact


def _longest(*waits: timedelta | None) -> timedelta | None:
    return max((wait for wait in waits if wait is not None), default=None)
