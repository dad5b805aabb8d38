"""While a call waits its client does not die, and what it hears in the end is the truth."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from jackline.events import AttemptFailed
from jackline.gateway.settings import CapSettings, GatewaySettings, HoldSettings, StreamMode
from jackline.testing import Step
from jackline.testing.scripted_upstream import STREAMED
from tests.gateway.desk_world import LANE, THROTTLED, WHOLE, World, play, wall

GOOD = Step()
WHOLE_ANSWER = Step(says=WHOLE, headers={"content-type": "application/json"})
SDK = "Anthropic/Python 0.120.0"


def test_a_short_wait_ends_with_the_vendors_own_head_and_bytes() -> None:
    async def scene(world: World) -> None:
        client = world.ask()
        await world.until_over(client, longest=12)
        assert client.status == 200
        assert client.body == STREAMED
        assert client.headers["x-jackline-attempts"] == "3"
        assert client.headers["x-jackline-lane"] == LANE
        assert float(client.headers["x-jackline-waited"]) > 1
        assert client.headers["request-id"] == client.headers["x-jackline-call"]

    world = play([THROTTLED, THROTTLED, GOOD], scene)
    assert [(e.outcome, e.attempts, e.status) for e in world.ended] == [("answered", 3, 200)]
    assert world.ended[0].session == "s1"
    assert world.ended[0].output_tokens == 20


def test_a_long_wait_keeps_claude_code_alive_with_message_starts() -> None:
    async def scene(world: World) -> None:
        client = world.ask()
        await world.pass_time(10)
        assert client.status_now() is None, "nothing is committed for a short while"
        await world.pass_time(290)
        assert client.status == 200
        assert client.headers["content-type"].startswith("text/event-stream")
        starts = client.events.count("message_start")
        assert 4 <= starts <= 6, "one a minute"
        assert client.events.count("ping") >= 10
        await world.until_over(client)
        assert client.body.endswith(STREAMED), (
            "the real answer comes whole, behind the signs of life"
        )
        assert client.complete

    play([*[wall(400)] * 1, GOOD], scene)


def test_other_clients_are_kept_alive_with_pings_alone() -> None:
    async def scene(world: World) -> None:
        client = world.ask(user_agent=SDK)
        await world.until_over(client)
        assert client.events[:2] == ["ping", "ping"]
        assert client.events.count("message_start") == 1

    play([wall(400), GOOD], scene)


def test_a_reset_beyond_the_hold_limit_is_told_at_once_in_the_vendors_words() -> None:
    async def scene(world: World) -> None:
        clients = [world.ask(agent=f"a{n}") for n in range(20)]
        await world.until_over(*clients, longest=2)
        for client in clients:
            assert client.status == 429
            words = json.loads(client.body)["error"]["message"]
            assert words.startswith(json.loads(wall(0).body)["error"]["message"])
            met_it = client.headers["request-id"] == "req_wall"
            assert ("It resets at" in words) is not met_it, "the vendor's words are not changed"
            assert client.headers["retry-after"] == "18000"
            assert client.headers["x-jackline-resets-at"] == "2026-11-15T14:00:00+00:00"
            assert client.headers["anthropic-ratelimit-unified-status"] == "rejected"
        assert sum(c.headers["request-id"] == "req_wall" for c in clients) == 8, "its own id only"
        late = world.ask(agent="late")
        assert late.status == 429

    world = play([wall(5 * 3600)], scene)
    assert len(world.upstream.attempts) == 8, "only what was in flight met the wall"
    assert {event.outcome for event in world.ended} == {"refused"}


@pytest.mark.parametrize("by", ["header", "setting"])
def test_afk_holds_until_the_reset_however_far(by: str) -> None:
    settings = GatewaySettings(hold=HoldSettings(until_reset=by == "setting"))

    async def scene(world: World) -> None:
        headers = {"x-jackline-hold": "until-reset"} if by == "header" else {}
        client = world.ask(headers=headers)
        await world.until_over(client, longest=5 * 3600 + 60)
        assert client.status == 200
        assert client.body.endswith(STREAMED)

    world = play([wall(5 * 3600), GOOD], scene, settings)
    assert len(world.upstream.attempts) == 2
    sent = dict(world.upstream.messages[0].headers)
    assert b"x-jackline-hold" not in sent, "ours stay here"


def test_a_wall_within_the_limit_is_waited_out_with_one_probe() -> None:
    async def scene(world: World) -> None:
        clients = [world.ask(agent=f"a{n}") for n in range(30)]
        await world.pass_time(100)
        assert len(world.upstream.attempts) == 8
        await world.until_over(*clients)
        assert all(client.body.endswith(STREAMED) for client in clients)

    world = play([*[wall(120)] * 8, GOOD], scene)
    assert len(world.upstream.attempts) == 38


def test_after_the_headers_are_out_the_truth_comes_as_an_error_and_the_retry_gets_its_status() -> (
    None
):
    async def scene(world: World) -> None:
        client = world.ask()
        await world.pass_time(30)
        assert client.status == 200
        await world.until_over(client)
        assert client.complete
        assert client.events[-1] == "error"
        assert b"exceed your account" in client.body
        again = world.ask(stream=False)
        assert again.status == 429
        assert again.body == wall(0).body
        assert again.headers["x-jackline-resets-at"]

    # The first reset passes, and behind it stands a wall that is too far away to wait for.
    world = play([wall(60), wall(5 * 3600)], scene)
    assert len(world.upstream.attempts) == 2


def test_a_hopeless_request_gets_the_vendors_error_byte_for_byte_and_once() -> None:
    body = b'{"type":"error","error":{"type":"invalid_request_error","message":"bad \\u00e9"}}'
    bad = Step(status=400, body=body, headers={"x-should-retry": "false", "request-id": "req_1"})

    async def scene(world: World) -> None:
        client = world.ask()
        await world.until_over(client, longest=5)
        assert (client.status, client.body) == (400, body)
        assert client.headers["request-id"] == "req_1"
        assert client.headers["x-should-retry"] == "false"

    world = play([bad], scene)
    assert len(world.upstream.attempts) == 1


def test_a_call_without_a_stream_is_sent_back_in_time_and_keeps_its_place() -> None:
    async def scene(world: World) -> None:
        client = world.ask(stream=False, headers={"X-Stainless-Timeout": "300"})
        await world.until_over(client, longest=300)
        assert client.status == 503
        assert client.headers["retry-after"] == "1"
        assert client.headers["x-should-retry"] == "true"
        assert client.headers["x-jackline-again"] == "true"
        assert "holds this call" in json.loads(client.body)["error"]["message"]
        again = world.ask(stream=False, headers={"X-Stainless-Timeout": "300"})
        await world.until_over(again)
        assert (again.status, again.body) == (200, WHOLE)
        assert again.headers["x-jackline-call"] == client.headers["x-jackline-call"]
        assert float(again.headers["x-jackline-waited"]) > 400

    world = play([wall(450), WHOLE_ANSWER], scene)
    assert [event.outcome for event in world.ended] == ["retry_later", "answered"]
    assert len(world.upstream.attempts) == 2


def test_a_clients_own_retry_joins_the_call_that_waits() -> None:
    async def scene(world: World) -> None:
        first = world.ask()
        await world.pass_time(5)
        second = world.ask()
        other_agent = world.ask(agent="a2")
        await world.until_over(first, second, other_agent)
        assert first.body.endswith(STREAMED)
        assert second.body.endswith(STREAMED)

    world = play([wall(60), GOOD], scene)
    assert len(world.upstream.attempts) == 3, "one refused, one for both, one for the other agent"
    assert world.desk.counts.joined == 1


def test_the_same_bytes_under_another_credential_are_never_joined() -> None:
    async def scene(world: World) -> None:
        first = world.ask()
        await world.pass_time(5)
        stranger = world.ask(headers={"x-api-key": "sk-ant-other"})
        await world.until_over(first, stranger)

    world = play([wall(60), GOOD], scene)
    assert world.desk.counts.joined == 0


def test_the_same_bytes_from_clients_without_a_session_are_never_joined() -> None:
    async def scene(world: World) -> None:
        clients = [world.ask(session=None) for _ in range(3)]
        await world.until_over(*clients)

    world = play([], scene)
    assert len(world.upstream.attempts) == 3


def test_a_client_that_leaves_while_it_waits_keeps_its_place() -> None:
    async def scene(world: World) -> None:
        first = world.ask()
        await world.pass_time(20)
        first.exchange.left()
        assert world.carrier.under_way == 0, "nobody waits for nobody"
        await world.pass_time(30)
        second = world.ask()
        await world.until_over(second)
        assert float(second.headers["x-jackline-waited"]) > 40

    world = play([wall(100), GOOD], scene)
    assert [event.outcome for event in world.ended] == ["client_left", "answered"]
    assert len({event.call for event in world.ended}) == 1


def test_a_client_that_leaves_ends_its_attempt_at_once() -> None:
    async def scene(world: World) -> None:
        client = world.ask()
        await world.clock.advance(0.5)
        before = world.upstream.open_now
        client.exchange.left()
        assert (before, world.upstream.open_now) == (1, 0)

    world = play([], scene)
    assert [event.outcome for event in world.ended] == ["client_left"]


def test_a_slow_client_slows_the_upstream() -> None:
    async def scene(world: World) -> None:
        client = world.ask()
        call = world.desk.calls[0]
        pause, resume = client.exchange.on_pause, client.exchange.on_resume
        assert pause is not None
        assert resume is not None
        pause()
        assert call.carried is not None
        paused = call.carried.paused
        resume()
        assert (paused, call.carried.paused) == (True, False)
        await world.until_over(client)

    play([], scene)


@pytest.mark.parametrize("cut", [100, 400, 700, 900])
def test_a_break_is_mended_unseen_for_headless_clients(cut: int) -> None:
    async def scene(world: World) -> None:
        client = world.ask()
        await world.until_over(client)
        assert client.body == STREAMED

    play([Step(cut=cut), GOOD], scene)


def test_a_turn_that_breaks_when_only_its_last_event_is_missing_has_taken_one_attempt() -> None:
    async def scene(world: World) -> None:
        client = world.ask()
        await world.until_over(client)
        assert client.events[-1] == "message_stop"
        assert client.headers["x-jackline-attempts"] == "1"

    world = play([Step(cut=STREAMED.index(b"event: message_stop"))], scene)
    assert [(e.outcome, e.attempts) for e in world.ended] == [("answered", 1)]


def test_a_live_stream_that_breaks_in_the_middle_is_never_ended_cleanly() -> None:
    async def scene(world: World) -> None:
        client = world.ask()
        await world.until_over(client)
        assert client.was_reset
        assert not client.complete
        assert "content_block_delta" in client.events

    live = replace(GatewaySettings(), stream=StreamMode.LIVE)
    world = play([Step(cut=600), GOOD], scene, live)
    assert [event.outcome for event in world.ended] == ["broken"]


@pytest.mark.parametrize("mode", [StreamMode.BLOCK, StreamMode.LIVE])
def test_what_broken_attempts_cost_stands_in_the_calls_record(mode: StreamMode) -> None:
    async def scene(world: World) -> None:
        await world.until_over(world.ask())

    settings = replace(GatewaySettings(), stream=mode)
    told = play([Step(cut=600), Step(cut=500), GOOD], scene, settings).ended[0]
    # Live, the first break is the end of it; in whole blocks two attempts break unseen.
    broken, answer = (2, (100, 20)) if mode is StreamMode.BLOCK else (1, (0, 0))
    assert (told.input_tokens, told.output_tokens) == answer
    assert (told.wasted_input_tokens, told.wasted_output_tokens) == (100 * broken, broken)


def test_people_watch_live_and_sub_agents_get_blocks() -> None:
    async def scene(world: World) -> None:
        terminal = "claude-cli/2.1.325 (external, cli)"
        world.ask(user_agent=terminal)
        world.ask(user_agent=terminal, agent="a1")
        world.ask()
        modes = [call.request.mode for call in world.desk.calls]
        assert modes == ["live", "block", "block"]
        await world.pass_time(10)

    play([], scene)


def test_caps_hold_back_a_session_a_sub_agent_and_a_tag() -> None:
    settings = GatewaySettings(caps=CapSettings(session=3, agent=1, tags={"night": 2}))

    async def scene(world: World) -> None:
        clients = [world.ask(f"a{n}", session="one", agent="x") for n in range(2)]
        clients += [world.ask(f"b{n}", session="one") for n in range(3)]
        clients += [world.ask(f"c{n}", session=None, tag="night") for n in range(3)]
        await world.clock.advance(0.1)
        assert world.upstream.open_now == 1 + 2 + 2
        why = [world.carrier.waiting(c.carried) for c in world.desk.calls if c.carried]
        assert any(told is not None and "as you allow" in told.why for told in why)
        await world.until_over(*clients)
        assert all(client.status == 200 for client in clients)

    play([], scene, settings)


def test_no_answer_at_all_is_told_as_what_it_is() -> None:
    refused = Step(breaks=ConnectionRefusedError(111, "Connection refused"), after=0.1)

    async def scene(world: World) -> None:
        client = world.ask(headers={"x": "y"})
        await world.until_over(client, longest=200)
        assert client.events[-1] == "error"
        again = world.ask(stream=False)
        assert again.status == 502
        assert json.loads(again.body)["error"]["type"] == "api_error"

    short = GatewaySettings(hold=HoldSettings(other=60))
    world = play([refused], scene, short)
    kinds = {event.kind for event in world.events if isinstance(event, AttemptFailed)}
    assert kinds == {"network_edge"}


def test_more_waiting_calls_than_allowed_are_answered_retry_later() -> None:
    limits = replace(GatewaySettings().limits, waiting_calls=5)

    async def scene(world: World) -> None:
        clients = [world.ask(agent=f"a{n}") for n in range(14)]
        told = [client.status for client in clients]
        assert told.count(503) == 1
        await world.until_over(*clients)

    play([], scene, replace(GatewaySettings(), limits=limits))


def test_when_the_gateway_stops_whoever_waits_is_told_to_ask_again() -> None:
    async def scene(world: World) -> None:
        held = world.ask(agent="a1")
        await world.pass_time(30)
        fresh = world.ask(agent="a2")
        world.desk.send_home()
        assert fresh.status == 503
        assert fresh.headers["retry-after"] == "5"
        assert held.complete
        assert held.events[-1] == "error"

    world = play([wall(300)], scene)
    assert {event.outcome for event in world.ended} == {"retry_later"}
