"""Explain a failure to a person: what it is, whose it is, what helps, and until when.

Rules: (1) every kind has a name, a cause and an advice; a test checks all three; (2) times are
shown in the zone of the text or the host, and in UTC; (3) nothing here decides anything.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from jackline.failures.failure import Failure, Kind, Scope, plain_seconds
from jackline.failures.resets import span

_NAMES = {
    Kind.SERVER_THROTTLE: "a throttle on the provider's side",
    Kind.RATE_LIMIT: "the account's rate limit",
    Kind.ACCOUNT_QUOTA: "the account's usage limit",
    Kind.BILLING: "a billing stop",
    Kind.OVERLOADED: "the provider's overload",
    Kind.UPSTREAM_5XX: "an error on the provider's side",
    Kind.NETWORK_EDGE: "the network between you and the provider",
    Kind.TIMEOUT: "a timeout",
    Kind.TRUNCATED_STREAM: "an answer that broke off",
    Kind.AUTH: "a rejected credential",
    Kind.INVALID_REQUEST: "a request that the API cannot accept",
    Kind.MODEL_NOT_FOUND: "a model that this account cannot use here",
    Kind.CONTENT_POLICY: "a content policy",
    Kind.TOOL_ERROR: "a tool's own failure",
    Kind.MISSING_STRUCTURED_OUTPUT: "a missing structured answer",
    Kind.CLIENT_CANCEL: "a cancellation on your side",
    Kind.NOT_A_FAILURE: "no failure",
}
_NAMES_BY_SUB = {
    (Kind.SERVER_THROTTLE, "ramp"): "a limit on how fast usage may grow",
    (Kind.SERVER_THROTTLE, "shared_capacity"): "a lack of shared capacity at the provider",
    (Kind.RATE_LIMIT, "concurrency"): "the account's limit on parallel requests",
    (Kind.RATE_LIMIT, "itpm"): "the account's limit of input tokens per minute",
    (Kind.RATE_LIMIT, "otpm"): "the account's limit of output tokens per minute",
    (Kind.RATE_LIMIT, "tpm"): "the account's limit of tokens per minute",
    (Kind.RATE_LIMIT, "rpm"): "the account's limit of requests per minute",
    (Kind.RATE_LIMIT, "router_cooldown"): "a proxy's own cool-down",
    (Kind.ACCOUNT_QUOTA, "session"): "the account's session limit",
    (Kind.ACCOUNT_QUOTA, "weekly"): "the account's weekly limit",
    (Kind.ACCOUNT_QUOTA, "weekly_model"): "the account's weekly limit for this model",
    (Kind.ACCOUNT_QUOTA, "daily"): "the account's daily limit",
    (Kind.ACCOUNT_QUOTA, "monthly"): "the account's monthly limit",
    (Kind.BILLING, "credits"): "a lack of credits",
    (Kind.BILLING, "long_context_credits"): "a lack of credits for long context",
    (Kind.BILLING, "spend_cap"): "a spend limit",
    (Kind.BILLING, "budget"): "a budget that is used up",
    (Kind.BILLING, "plan"): "a plan that does not include this",
    (Kind.NETWORK_EDGE, "refused"): "a refused connection",
    (Kind.NETWORK_EDGE, "dns"): "a host name that does not resolve",
    (Kind.NETWORK_EDGE, "tls"): "a certificate that is not trusted",
    (Kind.NETWORK_EDGE, "reset"): "a connection that was cut",
    (Kind.NETWORK_EDGE, "no_route"): "a network without a route to the internet",
    (Kind.NETWORK_EDGE, "proxy"): "a proxy that refused the connection",
    (Kind.NETWORK_EDGE, "captive_portal"): "a sign-in page or web filter in the way",
    (Kind.NETWORK_EDGE, "region_block"): "a block of this network or region",
    (Kind.NETWORK_EDGE, "cf_challenge"): "a bot challenge at the provider's edge",
    (Kind.NETWORK_EDGE, "malformed_200"): "an answer that is not the API's",
    (Kind.NETWORK_EDGE, "egress_policy"): "a sandbox that does not let this host through",
    (Kind.NETWORK_EDGE, "answer_too_large"): "an answer larger than limits.answer allows",
    (Kind.NETWORK_EDGE, "answers_too_large"): "the largest of answers that together hold more than"
    " limits.held_answers allows",
    (Kind.NETWORK_EDGE, "answer_too_long"): "an answer that goes on for longer than"
    " limits.answer_time allows",
    (Kind.AUTH, "expired"): "an expired login",
    (Kind.AUTH, "missing"): "a missing login",
    (Kind.AUTH, "org_disabled"): "a disabled account or organisation",
    (Kind.INVALID_REQUEST, "context_too_long"): "a conversation too long for the model",
    (Kind.INVALID_REQUEST, "thinking_signature"): "thinking blocks that another model signed",
    (Kind.INVALID_REQUEST, "tool_history"): "tool calls and results that do not pair up",
    (Kind.INVALID_REQUEST, "endpoint"): "an address that this server does not have",
    (Kind.CLIENT_CANCEL, "max_turns"): "the turn limit that you set",
    (Kind.CLIENT_CANCEL, "budget"): "the budget that you set",
    (Kind.NOT_A_FAILURE, "unrecognised"): "nothing that Jackline knows as a failure",
}
_CAUSES = {
    Kind.SERVER_THROTTLE: "the provider is short of capacity; your own usage is not the cause",
    Kind.RATE_LIMIT: "your own traffic is above what the account may send per minute or at once",
    Kind.ACCOUNT_QUOTA: "the account has used up its allowance; nothing is broken",
    Kind.BILLING: "the account's money or spend settings stop the request",
    Kind.OVERLOADED: "the provider has more traffic than it can serve; it is not your doing",
    Kind.UPSTREAM_5XX: "the provider's servers failed; it is not your doing",
    Kind.NETWORK_EDGE: "the request did not get through to the API, or something else answered",
    Kind.TIMEOUT: "no answer came in time; the request may or may not have been worked on",
    Kind.TRUNCATED_STREAM: "the answer began and did not end; what arrived may be incomplete",
    Kind.AUTH: "the API does not accept the caller",
    Kind.INVALID_REQUEST: "the request itself is at fault; the provider is fine",
    Kind.MODEL_NOT_FOUND: "the model's name, region or access is at fault",
    Kind.CONTENT_POLICY: "a filter judged the content; the provider is otherwise fine",
    Kind.TOOL_ERROR: "a tool on your side failed; the model's API is fine",
    Kind.MISSING_STRUCTURED_OUTPUT: "the model ended without the requested answer",
    Kind.CLIENT_CANCEL: "someone or something on your side stopped the request",
    Kind.NOT_A_FAILURE: "the request was served, or this is only a notice",
}
_LOCAL_EDGES = frozenset({"tls", "no_route", "proxy", "captive_portal", "egress_policy"})
_BEYOND_LIMITS = frozenset({"answer_too_large", "answers_too_large", "answer_too_long"})
_HUMAN_ADVICE = {
    Kind.BILLING: "Someone has to add credits or raise the limit",
    Kind.AUTH: "Someone has to log in again or fix the key",
    Kind.INVALID_REQUEST: "The request has to change",
    Kind.MODEL_NOT_FOUND: "Correct the model's name, or ask for access",
    Kind.CONTENT_POLICY: "The request has to be worded differently",
    Kind.TOOL_ERROR: "Look at the tool",
    Kind.CLIENT_CANCEL: "Start it again when you want it",
}


def name_of(failure: Failure) -> str:
    """A noun phrase for the failure, fit for the middle of a sentence."""
    return name_of_kind(failure.kind, failure.sub)


def name_of_kind(kind: Kind, sub: str | None) -> str:
    """The same from the kind alone."""
    return _NAMES_BY_SUB.get((kind, sub or ""), _NAMES[kind])


def explain(failure: Failure, now: datetime) -> list[str]:
    """Two or three plain sentences: what it is and whose fault, what helps, until when."""
    if failure.kind is Kind.NOT_A_FAILURE and failure.sub == "unrecognised":
        return [
            "This matches nothing that Jackline knows as a failure.",
            "If it is one, the HTTP status and headers beside the text would help to recognise it.",
        ]
    cause = _CAUSES[failure.kind]
    if failure.kind is Kind.NETWORK_EDGE and failure.sub in _LOCAL_EDGES:
        cause = "the fault is on your side of the line, not the provider's"
    elif failure.kind is Kind.NETWORK_EDGE and failure.sub in _BEYOND_LIMITS:
        cause = "no model's answer is like that, or the limit in jackline.toml is too low"
    sentences = [f"This is {name_of(failure)}: {cause}.", _advice(failure)]
    when = _until(failure, now)
    return [*sentences, when] if when else sentences


def _advice(failure: Failure) -> str:
    if not failure.failover_helps:
        elsewhere = "another upstream would not help"
    elif failure.scope is Scope.MODEL:
        elsewhere = "another model, or the same model elsewhere, works meanwhile"
    elif failure.scope is Scope.ACCOUNT:
        elsewhere = "an API key or another upstream works meanwhile"
    else:
        elsewhere = "another upstream can serve it meanwhile"
    if failure.kind is Kind.NOT_A_FAILURE:
        return "There is nothing to do."
    if failure.kind is Kind.ACCOUNT_QUOTA:
        return f"Retrying before the reset cannot succeed; {elsewhere}."
    if failure.kind is Kind.MISSING_STRUCTURED_OUTPUT:
        again = "Ask again in the same conversation" if failure.retry_same else "Raise the limit"
        return f"{again}; waiting or another upstream does not help."
    if failure.retry_same:
        return f"Waiting and retrying helps; {elsewhere}."
    human = _HUMAN_ADVICE.get(failure.kind, "Someone has to look at it")
    return f"{human}: retrying as it is cannot succeed; {elsewhere}."


def _until(failure: Failure, now: datetime) -> str | None:
    if failure.resets_at is not None:
        moment = moment_in_words(failure.resets_at, now)
        left = span(now, failure.resets_at)
        if left <= timedelta(0):
            return f"The limit was to reset at {moment}, which has passed: try one request now."
        return f"It resets at {moment}, in {duration_in_words(left)}."
    if failure.retry_after is not None:
        return f"The source asks to wait {duration_in_words(failure.retry_after)}."
    if failure.kind is Kind.ACCOUNT_QUOTA:
        return "The source does not say when it resets."
    return None


def moment_in_words(moment: datetime, now: datetime) -> str:
    """A time in its own zone, in the host's when that differs, and in UTC; dates where needed."""
    host = now.tzinfo
    views = [moment, moment.astimezone(host), moment.astimezone(UTC)]
    texts: list[str] = []
    offsets: list[timedelta | None] = []
    for view in views:
        if view.utcoffset() in offsets:
            continue
        offsets.append(view.utcoffset())
        texts.append(clock_in_words(view, now))
    first, *others = texts
    return f"{first} ({', '.join(others)})" if others else first


def clock_in_words(moment: datetime, now: datetime) -> str:
    """A time in its own zone alone; the date where that is another day."""
    clock = f"{moment:%H:%M:%S}" if moment.second else f"{moment:%H:%M}"
    there = now.astimezone(moment.tzinfo)
    if moment.date() != there.date():
        clock += f" on {moment.day} {moment:%B}"
        clock += "" if moment.year == there.year else f" {moment.year}"
    return f"{clock} {zone_name(moment)}"


def zone_name(moment: datetime) -> str:
    """The zone's name as in the text, or its offset when it has none."""
    key = getattr(moment.tzinfo, "key", None)
    if isinstance(key, str):
        return key
    offset = moment.utcoffset()
    if not offset:
        return "UTC"
    digits = f"{moment:%z}"
    return f"UTC{digits[:3]}:{digits[3:5]}"


def duration_in_words(duration: timedelta) -> str:
    """A duration in its two largest units: "2 h 10 min"."""
    seconds = duration.total_seconds()
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    if seconds < 60:
        return f"{plain_seconds(timedelta(seconds=round(seconds, 1)))} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    shown = [f"{number} {unit}" for number, unit in parts if number]
    return " ".join(shown[:2])
