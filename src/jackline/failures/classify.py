"""Turn one observation into one `Failure`: weigh the signals in their order, strongest first.

Rules: (1) total: any input gives a result, in time linear in its size; (2) pure: the same
observation and the same `now` give the same result; (3) quota and billing are never `retry_same`;
(4) a wait of more than two minutes on a rate limit is a window, not a burst; (5) of a status page
the incidents count, not its overall status, which lags; a page only confirms, it never makes a
failure of calls that succeed, and only an incident's name or text names the model.
Not here: how each family of failures is recognised (rules/), times in texts (resets.py), fetching a
status page.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from jackline.failures.evidence import FailureSignals
from jackline.failures.failure import Failure, Kind, Scope
from jackline.failures.observation import Observation, Where
from jackline.failures.resets import (
    LONGEST,
    SPEND_CAP_REASONS,
    UNIFIED,
    SpentWindow,
    body_reset,
    body_wait,
    find_reset,
    find_wait,
    header_wait,
    span,
)
from jackline.failures.rules import agents, limits, outages, refusals
from jackline.failures.rules.rule import KIND_DEFAULTS, FailureRule, Verdict, when

# Guesses from single words, when nothing more specific was found; they err towards not retrying.
LAST_RESORT = (
    when(
        text=(r"rate[-_ ]?limit", r"too many requests", r"throttl"),
        then=Verdict(Kind.SERVER_THROTTLE),
    ),
    when(text=(r"quota", r"usage limit"), then=Verdict(Kind.ACCOUNT_QUOTA, "unknown_window")),
    when(
        text=(r"have permission", r"not authori[sz]ed", r"access denied", r"permission_denied"),
        then=Verdict(Kind.AUTH, "forbidden"),
    ),
    when(text=r"server error", then=Verdict(Kind.UPSTREAM_5XX)),
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
# The order matters: what cannot be retried comes first, the API's own code before the client's
# text, what names its cause before what only has a status.
_TABLES: tuple[tuple[FailureRule, ...], ...] = (
    limits.BILLING,
    limits.QUOTA,
    limits.PROJECT_QUOTA,
    outages.BORDER,
    refusals.POLICY,
    limits.SHARED_CAPACITY,
    outages.OVERLOAD,
    limits.RATE,
    refusals.TRANSIENT_AUTH,
    refusals.MODEL,
    refusals.INVALID,
    refusals.AUTH,
    refusals.OTHERWISE_INVALID,
    agents.STRUCTURED_OUTPUT,
    outages.LATE,
    outages.STREAM,
    outages.BROKEN,
    outages.PATH,
    outages.TIMEOUT,
    outages.UNREACHABLE,
)
_PARKS = frozenset({Kind.ACCOUNT_QUOTA, Kind.BILLING})
# Clients round a reset to the minute or to ten minutes.
_ROUNDED = timedelta(minutes=10)
_ENDS_OF_STREAM = frozenset({"message_stop", "response.completed", "[DONE]", "response.incomplete"})
_LONGEST_BURST = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class _Decision:
    verdict: Verdict
    evidence: tuple[str, ...]
    resets_at: datetime | None = None
    guess: bool = False

    def reset(
        self, signals: FailureSignals, wait: timedelta | None, now: datetime
    ) -> datetime | None:
        """When the window refills: an epoch is exact, but the text has the reader's zone.

        None also for a time further ahead than any window lasts.
        """
        printed = find_reset(signals.prose, now, primary=self.verdict.kind is Kind.BILLING)
        moment = self.resets_at or body_reset(signals.payload.numbers, now)
        if moment is None:
            moment = printed or (now + wait if wait is not None else None)
        elif printed is not None and abs(span(moment, printed)) <= _ROUNDED:
            moment = moment.astimezone(printed.tzinfo)
        return None if moment is None or span(now, moment) > LONGEST else moment

    def corrected(self, signals: FailureSignals, wait: timedelta | None) -> _Decision:
        """Correct the verdict by how long, and whether at all, the source requests to wait."""
        verdict = self.verdict
        is_guess = verdict.kind is Kind.SERVER_THROTTLE and self.guess
        is_long = wait is not None and wait > _LONGEST_BURST
        if is_long and (verdict.kind is Kind.RATE_LIMIT or is_guess):
            sub = "daily" if wait is not None and wait >= timedelta(hours=12) else "unknown_window"
            return _Decision(
                Verdict(Kind.ACCOUNT_QUOTA, sub, verdict.scope),
                (*self.evidence, f"asks to wait {wait}: a window, not a burst"),
                self.resets_at,
            )
        if verdict.sub == "unknown_window" and self.resets_at is None:
            # The smallest window that a wait of this length fits into.
            if wait is None or wait <= timedelta(hours=24):
                return self
            window = "weekly" if wait <= timedelta(days=7.5) else "monthly"
            return replace(self, verdict=replace(verdict, sub=window))
        if signals.headers.get("x-should-retry") == "false" and KIND_DEFAULTS[verdict.kind][1]:
            return _Decision(
                replace(verdict, retry_same=False, sub=verdict.sub or "declined"),
                (*self.evidence, "x-should-retry: false"),
                self.resets_at,
            )
        return self


_FINE = _Decision(Verdict(Kind.NOT_A_FAILURE), ("a complete answer",))


def classify(observation: Observation, *, now: datetime) -> Failure:
    """What `observation` means; the zone of `now` is the host's, for texts without a zone."""
    if now.tzinfo is None:
        raise ValueError("classify needs an aware now: its zone is the host's")
    signals = FailureSignals.of(observation)
    waits = (
        header_wait(signals.headers, now),
        body_wait(signals.payload.numbers, now),
        find_wait(signals.prose),
    )
    wait = max((each for each in waits if each is not None), default=None)
    decision = _decide(observation, signals, now).corrected(signals, wait)
    verdict = decision.verdict
    scope, retry_same, failover_helps = KIND_DEFAULTS[verdict.kind]
    parks = verdict.kind in _PARKS
    if verdict.retry_same is not None and not parks:
        retry_same = verdict.retry_same
    if verdict.failover_helps is not None:
        failover_helps = verdict.failover_helps
    status = () if signals.status is None else (f"status {signals.status}",)
    resets_at = decision.reset(signals, wait, now) if parks else None
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


def _decide(observation: Observation, signals: FailureSignals, now: datetime) -> _Decision:
    if signals.where is Where.STATUSPAGE:
        return _Decision(_judge_page(observation, signals), ("status page",))
    decision = _by_structure(signals)
    if decision is None and not signals.failed_status:
        decision = _by_rules((agents.NOTICES,), signals)
    if decision is None:
        decision = _by_rules((agents.CANCELS, agents.TOOLS), signals)
    if decision is None and not signals.succeeded:
        decision = _by_headers(signals, now) or _by_vendor_fields(signals)
    if decision is None:
        decision = _by_rules(_TABLES, signals)
    if decision is not None:
        return decision
    # The last resort: single words, the status alone, or the mere fact that it was an error.
    decision = _by_rules((LAST_RESORT,), signals)
    if decision is None:
        status = signals.status
        evidence = "nothing recognised" if status is None else f"status {status}"
        decision = _Decision(_verdict_of_status(signals), (evidence,))
    return replace(decision, guess=True)


def _judge_page(observation: Observation, signals: FailureSignals) -> Verdict:
    """What the status page means for calls made now."""
    page, text = observation.body, signals.text
    if isinstance(page, dict) and ("incidents" in page or "components" in page):
        lists = [page.get("incidents"), page.get("components")]
        incidents, components = (
            [item for item in each if isinstance(item, dict)] if isinstance(each, list) else []
            for each in lists
        )
        texts = []
        for incident in incidents:
            if str(incident.get("status")) not in _CLOSED:
                updates = incident.get("incident_updates")
                dicts = (
                    (u for u in updates if isinstance(u, dict)) if isinstance(updates, list) else ()
                )
                newest = next((each.get("body", "") for each in dicts), "")
                texts.append(f"{incident.get('name', '')} {newest}".lower())
        failing = [each for each in texts if _TROUBLE.search(each)]
        broken = any(str(each.get("status")) in _BROKEN_COMPONENT for each in components)
        is_fine, text = not failing and not broken, " · ".join(failing)
    else:
        is_fine = bool(_OVER.search(text)) or not _TROUBLE.search(text)
    if is_fine:
        return Verdict(Kind.NOT_A_FAILURE, "incident")
    if _LOGIN.search(text):
        return Verdict(Kind.AUTH, "outage", Scope.UPSTREAM, retry_same=True)
    scope = Scope.MODEL if _MODEL.search(text) else Scope.UPSTREAM
    return Verdict(Kind.UPSTREAM_5XX, "incident", scope)


def _by_structure(signals: FailureSignals) -> _Decision | None:
    """What the form of the payload decides before any text is matched."""
    payload, codes = signals.payload, signals.codes
    if "iserror" in payload.keys or ("tool_result" in codes and "is_error" in payload.keys):
        return _Decision(Verdict(Kind.TOOL_ERROR), ("a tool's result, marked as an error",))
    if "structured_output" in payload.nulls and "result" in codes:
        missing = Verdict(Kind.MISSING_STRUCTURED_OUTPUT, "absent")
        return _Decision(missing, ("a result whose structured_output is null",))
    if signals.where is Where.SSE and payload.events and not payload.marked_error:
        if _ENDS_OF_STREAM & set(payload.events):
            return _by_rules((refusals.POLICY,), signals) or _FINE
        if "finish_reason" in payload.keys:
            return None
        return _Decision(
            Verdict(Kind.TRUNCATED_STREAM, "no_message_stop"), ("stream without its last event",)
        )
    may_be_fine = signals.succeeded or signals.where in (Where.TRANSCRIPT, Where.SSE)
    if may_be_fine and payload.is_json and not payload.marked_error and _is_success(signals):
        return _FINE
    if signals.outer_status == 200 and signals.where is Where.HTTP:
        return _odd_success(signals)
    return None


def _odd_success(signals: FailureSignals) -> _Decision | None:
    """A 200 whose body is a web page, or empty."""
    if signals.payload.html:
        portal = Verdict(
            Kind.NETWORK_EDGE, "captive_portal", retry_same=False, failover_helps=False
        )
        return _Decision(portal, ("HTTP 200 with a web page",))
    if not signals.payload.empty:
        return None
    if not signals.body_seen:
        return _FINE
    return _Decision(Verdict(Kind.NETWORK_EDGE, "malformed_200"), ("HTTP 200, empty body",))


def _is_success(signals: FailureSignals) -> bool:
    codes, keys = signals.codes, signals.payload.keys
    if "rejected" in codes or any(code.endswith("exception") for code in codes):
        return False
    if _by_rules((refusals.POLICY,), signals) is not None:
        return False
    if "result" in codes:
        return "success" in codes and not signals.payload.numbers.get("api_error_status")
    return bool(keys & {"choices", "candidates", "content", "output", "usage", "message"}) and not (
        keys & {"is_error", "code", "blockreason"}
    )


def _by_rules(
    tables: tuple[tuple[FailureRule, ...], ...], signals: FailureSignals
) -> _Decision | None:
    for table in tables:
        for rule in table:
            evidence = rule.evidence(signals)
            if evidence is not None:
                return _Decision(rule.verdict, (evidence,))
    return None


def _by_headers(signals: FailureSignals, now: datetime) -> _Decision | None:
    headers = signals.headers
    reason = headers.get(f"{UNIFIED}overage-disabled-reason", "")
    if reason in SPEND_CAP_REASONS or headers.get(f"{UNIFIED}overage-daily-cap-paused") == "true":
        window = SpentWindow.of_subscription(headers, now)
        return _Decision(
            Verdict(Kind.BILLING, "spend_cap"),
            (f"{UNIFIED}overage-disabled-reason: {reason}",),
            window.resets_at if window else None,
        )
    if reason == "fetch_error":
        return _Decision(
            Verdict(Kind.SERVER_THROTTLE, "limit_check"), (f"{UNIFIED}…: fetch_error",)
        )
    window = SpentWindow.of_subscription(headers, now) if signals.status in (None, 429) else None
    window = (
        window
        or SpentWindow.of_codex(headers, now)
        or SpentWindow.of_event(signals.codes, signals.payload.numbers, now)
    )
    if window is None or _by_rules((limits.BILLING,), signals) is not None:
        return None
    scope = Scope.MODEL if window.sub == "weekly_model" else None
    return _Decision(
        Verdict(Kind.ACCOUNT_QUOTA, window.sub, scope), (window.signal,), window.resets_at
    )


def _by_vendor_fields(signals: FailureSignals) -> _Decision | None:
    codes, headers = signals.codes, signals.headers
    quota_ids = sorted(code for code in codes if "per" in code and len(code) > 15)
    evidence = tuple(f"quotaId {each}" for each in quota_ids)
    if any("perday" in each for each in quota_ids):
        return _Decision(Verdict(Kind.ACCOUNT_QUOTA, "daily", Scope.MODEL), evidence)
    if any("perminute" in each for each in quota_ids):
        sub = "tpm" if any("token" in each for each in quota_ids) else "rpm"
        return _Decision(Verdict(Kind.RATE_LIMIT, sub, Scope.MODEL), evidence)
    window = next(
        (each for each in ("weekly", "daily", "monthly") if any(each in code for code in codes)),
        None,
    )
    if window is not None and any(each in code for code in codes for each in ("limit", "quota")):
        return _Decision(Verdict(Kind.ACCOUNT_QUOTA, window), (f"a code that says {window}",))
    if headers.get("x-ratelimit-exceeded", "").startswith("quota"):
        return _Decision(Verdict(Kind.ACCOUNT_QUOTA, "monthly"), ("x-ratelimit-exceeded",))
    if headers.get("cf-mitigated") == "challenge":
        return _Decision(Verdict(Kind.NETWORK_EDGE, "cf_challenge"), ("cf-mitigated: challenge",))
    if "x-deny-reason" in headers:
        denied = Verdict(Kind.NETWORK_EDGE, "egress_policy", retry_same=False, failover_helps=False)
        return _Decision(denied, (f"x-deny-reason: {headers['x-deny-reason']}",))
    return None


def _verdict_of_status(signals: FailureSignals) -> Verdict:  # noqa: PLR0911 -- a table of statuses
    match signals.status:
        case 401:
            return Verdict(Kind.AUTH, "invalid")
        case 403 if signals.payload.html or (
            signals.body_seen
            and not signals.payload.is_json
            and "request-id" not in signals.headers
        ):
            return Verdict(Kind.NETWORK_EDGE, "region_block", retry_same=False)
        case 403:
            return Verdict(Kind.AUTH, "forbidden")
        case 404 if "model" in signals.text:
            return Verdict(Kind.MODEL_NOT_FOUND)
        case 404 | 405:
            return Verdict(Kind.INVALID_REQUEST, "endpoint", failover_helps=True)
        case 413:
            return Verdict(Kind.INVALID_REQUEST, "request_too_large")
        case 424:
            return Verdict(Kind.UPSTREAM_5XX, scope=Scope.MODEL)
        case 429:
            sub = "burst" if signals.provider == "anthropic" else None
            return Verdict(Kind.SERVER_THROTTLE, sub)
        case 451:
            return Verdict(Kind.NETWORK_EDGE, "region_block", retry_same=False)
        case int(status) if 400 <= status < 500:
            return Verdict(Kind.INVALID_REQUEST)
        case int(status) if status >= 500:
            return Verdict(Kind.UPSTREAM_5XX)
        case _:
            return _verdict_without_status(signals)


def _verdict_without_status(signals: FailureSignals) -> Verdict:
    if signals.codes & {"rate_limit_error", "rate_limit"}:
        return Verdict(Kind.SERVER_THROTTLE)
    if signals.where is Where.SSE and signals.payload.empty:
        return Verdict(Kind.TRUNCATED_STREAM, "empty")
    if signals.where is Where.EXCEPTION:
        return Verdict(Kind.TOOL_ERROR, "unrecognised", Scope.CLIENT)
    return Verdict(Kind.NOT_A_FAILURE, "unrecognised")
