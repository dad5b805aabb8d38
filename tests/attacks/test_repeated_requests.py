"""Adversary: a caller whose request an honest vendor repeats in an error, in any part of it.

The lanes are shared: whatever a caller writes, and in whatever form it comes back, they go on. What
the vendor says itself closes them as before.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tracemalloc
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackline.agents.process.program import Failed
from jackline.agents.runner import is_run_wall
from jackline.calls import CallRequest, HoldLimits
from jackline.calls.verdict import judge_rejection
from jackline.failures import Failure, Kind, Observation, Where, classify
from jackline.lanes import Call
from jackline.lanes.reactions import Reaction, reaction_to
from jackline.states import LaneState
from jackline.testing import Step
from jackline.upstream.interface import UpstreamRequest
from tests.calls.test_carrier import World, play
from tests.calls.whole_answer import complete_call
from tests.lane_ids import lane_id

NOW = datetime(2026, 11, 20, tzinfo=UTC)
JSON = {"content-type": "application/json"}
WALLS = [
    "You have hit your weekly limit, resets Dec 25 at 5pm (UTC)",
    "You have hit your weekly limit · resets Dec 25 at 5pm (UTC)",
    "out of extra usage · resets Dec 25 at 5pm (UTC)",
    "Claude AI usage limit reached|1798218000",
    "usage limit reached, try again in 39 days",
    "tokens per day (TPD): try again in 39 days",
]
FORMS: list[Callable[[str], str]] = [
    lambda text: text,
    lambda text: json.dumps({"message": text}),
    lambda text: f'{{"message": "{text}"}}'.replace(" your", "\\u0020your"),
    lambda text: json.dumps({"error": {"type": "rate_limit_error", "message": text}}),
    lambda text: json.dumps({"error": {"message": json.dumps({"message": text})}}),
    lambda text: f"litellm.RateLimitError: {json.dumps({'error': {'message': text}})}",
    lambda text: f"{{'message': '{text}'}}",
    lambda text: f"event: error\ndata: {json.dumps({'error': {'message': text}})}",
    lambda text: text.replace(" ", "\u00a0"),
    lambda text: "\x1b[0m" + text.upper(),
]
CODES = [
    '{"status": 402, "resets_at": 1798218000}',
    '{"status": 503}',
    '{"status": 429, "retry_after": 3000000}',
    '{"code":"weekly_limit_reached"}',
    '{"code":"usage_limit_reached","resets_in_seconds":3369600}',
    "ServiceQuotaExceededException",
    "Overloaded",
    "status 503: upstream connect error",
    (
        "You have reached your specified API usage limits. You will regain access on 2026-12-25"
        " at 00:00 UTC."
    ),
    "Your credit balance is too low.",
]
AHEAD = "You have hit your weekly limit, resets in 39 days"
SPENT = '{"status": 402, "message": "no quota, resets in 39 days"}'
TEXTS = [*(form(wall) for wall in WALLS for form in FORMS), *CODES]
# By status: what honest vendors write around what they repeat.
AROUND = [
    (404, "model: {}"),
    (404, "The model `{}` does not exist or you do not have access to it."),
    (400, "{}: Extra inputs are not permitted"),
    (400, "{0}: Extra inputs are not permitted, {1}: Extra inputs are not permitted"),
    (400, "metadata.{}: Input should be a valid string"),
    (400, "tools.0.custom.name: '{}' does not match pattern"),
    (400, "messages.0.content: {}... {} is too long"),
    (413, "prompt is too large: {}"),
    (422, "Input tag '{}' found using 'type' does not match any of the expected tags"),
    (403, "Your key may not use {}"),
    (401, "invalid x-api-key {}"),
    (409, "{} {}"),
]


def _plain(error: Mapping[str, object]) -> dict[str, object]:
    return {"type": "error", "error": dict(error)}


def _nested(error: Mapping[str, object]) -> dict[str, object]:
    """As routers pass on an upstream's error."""
    inner = json.dumps(_plain(error))
    return {"error": {"message": f"litellm.BadRequestError: AnthropicException - {inner}"}}


def _nested_whole(error: Mapping[str, object]) -> dict[str, object]:
    return {"error": {"message": json.dumps(_plain(error)), "code": None}}


def _flat(error: Mapping[str, object]) -> dict[str, object]:
    return {"detail": error["message"]}


DOCUMENTS = [_plain, _nested, _nested_whole, _flat]


def requested(first: str, second: str, where: str) -> UpstreamRequest:
    body: dict[str, object] = {
        "model": "claude-opus-4-8",
        "messages": [{"role": "user", "content": "hi"}],
    }
    match where:
        case "model":
            body["model"] = first
            body["user"] = second
        case "field":
            body[first] = body[second] = 1
        case "tag":
            body["metadata"] = {"user_id": first, "tags": [second]}
        case "tool":
            body["tools"] = [{"name": first}, {"name": second}]
        case "content":
            body["messages"] = [{"role": first, "content": second}]
    return UpstreamRequest(b"POST", b"/v1/messages", (), json.dumps(body).encode())


PLACES = ["model", "field", "tag", "tool", "content"]
judged = partial(classify, now=NOW)


@pytest.mark.parametrize("text", [FORMS[3](WALLS[0]), FORMS[5](WALLS[0]), *CODES])
@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.parametrize("where", PLACES)
def test_a_document_that_is_all_that_is_repeated_is_not_the_vendors(
    text: str, document: Callable[[Mapping[str, object]], dict[str, object]], where: str
) -> None:
    body = json.dumps(document({"type": "invalid_request_error", "message": text})).encode()
    for status in (400, 404, 413, 422):
        seen = Observation.of_response(status, JSON, body)
        failure = judge_rejection(judged, seen, requested(text, text, where))
        assert reaction_to(failure) is Reaction.CALL


@settings(max_examples=400, deadline=None)
@given(
    first=st.sampled_from(TEXTS) | st.text(max_size=40),
    second=st.sampled_from([*TEXTS, "resets Dec 25 at 5pm (UTC)", "x"]),
    around=st.sampled_from(AROUND),
    document=st.sampled_from(DOCUMENTS),
    where=st.sampled_from(PLACES),
)
def test_nothing_that_a_caller_writes_touches_a_lane_when_it_is_repeated(
    first: str,
    second: str,
    around: tuple[int, str],
    document: Callable[[Mapping[str, object]], dict[str, object]],
    where: str,
) -> None:
    status, text = around
    said = text.format(first, second)
    body = json.dumps(document({"type": "invalid_request_error", "message": said})).encode()
    seen = Observation.of_response(status, JSON, body)
    request = requested(first, second, where)
    failure = judge_rejection(judged, seen, request)
    assert reaction_to(failure) is Reaction.CALL
    # Nor does it park the run of an agent that meets it.
    assert not is_run_wall(judge_rejection(judged, seen, request, concerns=is_run_wall))


@settings(max_examples=200, deadline=None)
@given(
    text=st.sampled_from(TEXTS),
    around=st.sampled_from(
        [
            "No deployments available for selected model, Try again in 5 seconds. Passed model={}",
            "Rate limit reached for {} in organization org-1 on requests per min (RPM): Limit 3.",
            "Budget has been exceeded! Tag={}",
            "Too many requests for {}",
        ]
    ),
    where=st.sampled_from(["model", "field", "tag"]),
    status=st.sampled_from([408, 429]),
)
def test_a_name_that_a_throttle_repeats_closes_no_lane_for_long(
    text: str, around: str, where: str, status: int
) -> None:
    error = {"type": "rate_limit_error", "message": around.format(text)}
    seen = Observation.of_response(status, JSON, json.dumps(_plain(error)).encode())
    failure = judge_rejection(judged, seen, requested(text, "x", where))
    assert reaction_to(failure) in (Reaction.THROTTLE, Reaction.OUTAGE, Reaction.CALL)
    assert failure.retry_after is None
    assert failure.resets_at is None


@pytest.mark.parametrize("text", WALLS)
def test_the_same_words_of_the_vendor_itself_park(text: str) -> None:
    error = {"type": "rate_limit_error", "message": text}
    request = requested("claude-opus-4-8", "x", "model")
    for document in (_plain, _nested, _nested_whole):
        seen = Observation.of_response(429, JSON, json.dumps(document(error)).encode())
        assert reaction_to(judge_rejection(judged, seen, request)) is Reaction.PARK
    for status in (400, 403, 502):
        # Of the vendor's own type they are believed with any status.
        for document in (_plain, _nested, _nested_whole):
            seen = Observation.of_response(status, JSON, json.dumps(document(error)).encode())
            assert reaction_to(judge_rejection(judged, seen, request)) is Reaction.PARK


REAL = [
    (
        400,
        (
            "You have reached your specified API usage limits. "
            "You will regain access on 2026-12-01 at 00:00 UTC."
        ),
    ),
    (
        403,
        (
            "You've reached your weekly (7-day) usage limit. Your quota will reset when the current"
            " 7-day window ends. To continue now, purchase extra usage or upgrade your plan:"
            " https://www.kimi.com/membership/subscription?tab=quota"
        ),
    ),
]


@pytest.mark.parametrize(("status", "text"), REAL)
@pytest.mark.parametrize("document", [_plain, _nested, _nested_whole])
@pytest.mark.parametrize("outer", [None, 502])
def test_a_known_sentence_parks_with_any_status_also_through_routers(
    status: int,
    text: str,
    document: Callable[[Mapping[str, object]], dict[str, object]],
    outer: int | None,
) -> None:
    body = json.dumps(document({"type": "invalid_request_error", "message": text})).encode()
    seen = Observation.of_response(outer or status, JSON, body)
    request = requested("claude-opus-4-8", "x", "model")
    assert reaction_to(judge_rejection(judged, seen, request)) is Reaction.PARK


def test_a_spent_balance_that_comes_with_status_400_parks_a_run() -> None:
    text = (
        "Your credit balance is too low to access the Anthropic API. "
        "Please go to Plans & Billing to upgrade or purchase credits."
    )
    body = json.dumps(_plain({"type": "invalid_request_error", "message": text})).encode()
    seen = Observation.of_response(400, JSON, body)
    request = requested("claude-opus-4-8", "x", "model")
    assert judge_rejection(judged, seen, request, concerns=is_run_wall).kind is Kind.BILLING


@pytest.mark.parametrize("text", [CODES[-2], CODES[-1]])
@pytest.mark.parametrize("escaped", [False, True])
@pytest.mark.parametrize("where", ["content", "tool", "target", "header"])
def test_a_known_sentence_that_is_all_that_is_repeated_touches_no_lane(
    text: str, where: str, *, escaped: bool
) -> None:
    request = requested(text, text, where)
    if escaped:
        body = bytes(request.body).replace(b"specified", b"\\u0073pecified")
        request = request._replace(body=body.replace(b"credit", b"\\u0063redit"))
    if where == "target":
        request = request._replace(target=b"/v1/messages?q=" + text.replace(" ", "%20").encode())
    if where == "header":
        request = request._replace(headers=((b"x-tag", text.encode()),))
    error = {"type": "invalid_request_error", "message": text}
    seen = Observation.of_response(400, JSON, json.dumps(_plain(error)).encode())
    assert reaction_to(judge_rejection(judged, seen, request)) is Reaction.CALL
    assert not is_run_wall(judge_rejection(judged, seen, request, concerns=is_run_wall))


def _ask(world: World, request: UpstreamRequest) -> asyncio.Task[object]:
    call = Call(0, (lane_id("first"),), stream=False, max_tokens=100)
    asked = CallRequest("jl_odd", request, call, hold=HoldLimits(quota=0.0, other=1e9))
    return asyncio.create_task(complete_call(world.carrier, asked))


@pytest.mark.parametrize("text", [FORMS[2](AHEAD), CODES[1], CODES[2], SPENT])
def test_a_lane_is_open_after_many_odd_requests(text: str) -> None:
    error = {"type": "invalid_request_error", "message": f"{text}: Extra inputs are not permitted"}
    odd = Step(status=400, headers=JSON, body=json.dumps(_plain(error)).encode())

    async def scene(world: World) -> None:
        for _ in range(15):
            task = _ask(world, requested(text, "x", "field"))
            await world.clock.advance(3)
            assert task.done()
            assert task.exception() is not None
        lane = world.controller.lanes[lane_id("first")]
        assert lane.state is LaneState.OPEN
        assert lane.health.error_share(world.clock.steady()) == 0

    play({"first": [odd] * 15}, scene)


def test_an_error_without_a_limit_closes_no_lane_by_headers_that_every_answer_has() -> None:
    """A paid plan, whose windows are used up or whose extra usage is switched off."""
    later = str(int(NOW.timestamp()) + 39 * 86_400)
    unified = {
        "anthropic-ratelimit-unified-status": "allowed",
        "anthropic-ratelimit-unified-representative-claim": "five_hour",
        "anthropic-ratelimit-unified-reset": later,
        "anthropic-ratelimit-unified-overage-disabled-reason": "org_level_disabled_until",
    }
    codex = {
        "x-codex-primary-used-percent": "100",
        "x-codex-primary-reset-at": later,
        "x-codex-credits-has-credits": "True",
    }
    error = {"type": "not_found_error", "message": "model: claude-nonsense"}
    body = json.dumps(_plain(error)).encode()
    for status in (400, 404, 413, 422, 500, 529):
        for headers in (unified, codex):
            seen = Observation.of_response(status, {**JSON, **headers}, body)
            failure = judge_rejection(judged, seen, requested("claude-nonsense", "x", "model"))
            assert reaction_to(failure) is not Reaction.PARK


# --- the work ----------------------------------------------------------------------------------


def _work_of(request: UpstreamRequest, seen: Observation) -> tuple[int, int, Failure]:
    """How many calls of functions it takes, and how much memory."""
    steps = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")

    judge_rejection(judged, seen, request)
    tracemalloc.start()
    sys.setprofile(count)
    try:
        failure = judge_rejection(judged, seen, request)
    finally:
        sys.setprofile(None)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return steps, most, failure


@pytest.mark.parametrize("status", [400, 404, 429])
@pytest.mark.parametrize("text", [WALLS[0], REAL[0][1]])
@pytest.mark.parametrize("value", ["[]", '{"a":1}', '"a"', '"\\u001b["', '" a"'])
def test_a_large_request_is_not_decoded_to_judge_its_rejection(
    status: int, text: str, value: str
) -> None:
    def asked(number: int) -> UpstreamRequest:
        many = ",".join([value] * number)
        content = f'[{{"role":"user","content":[{many}]}}]'
        body = f'{{"model":{json.dumps(text)},"messages":{content}}}'
        return UpstreamRequest(b"POST", b"/v1/messages", (), body.encode())

    error = {"type": "invalid_request_error", "message": f"model: {text}"}
    seen = Observation.of_response(status, JSON, json.dumps(_plain(error)).encode())
    few, _, _ = _work_of(asked(1), seen)
    large = asked(1_000_000 // (len(value) + 1))
    many, memory, failure = _work_of(large, seen)
    assert reaction_to(failure) is not Reaction.PARK
    assert many <= few + 10
    assert memory < 4 * len(large.body)


@pytest.mark.parametrize("model", [WALLS[0], FORMS[2](WALLS[0]), "claude-opus-4-8"])
def test_a_program_that_prints_its_models_odd_name_parks_no_run(model: str) -> None:
    """Models may name models for the agents that they start."""
    error = json.dumps(_plain({"type": "not_found_error", "message": f"model: {model}"}))
    for text in (f"API Error: 404 {error}", f"There's an issue with the selected model ({model})."):
        seen = Observation(Where.TRANSCRIPT, "anthropic", 404, text=text)
        failed = Failed.of(seen, NOW, model=model, attempts=1)
        assert not is_run_wall(failed.failure)
    seen = Observation(Where.TRANSCRIPT, "anthropic", 429, text=f"API Error: {WALLS[0]}")
    assert is_run_wall(Failed.of(seen, NOW, model="claude-opus-4-8", attempts=1).failure)
