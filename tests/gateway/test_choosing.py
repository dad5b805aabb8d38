"""Where calls go when there is more than one place for them."""

from __future__ import annotations

import fnmatch
import json
from dataclasses import replace

import pytest

from jackline.control import GatewayStatus
from jackline.errors import BadArgumentError
from jackline.gateway.caller import Client, Identity
from jackline.gateway.control_plane import OperatorOrders
from jackline.gateway.placement import RouteChooser, RouteOverride
from jackline.gateway.settings import GatewaySettings
from jackline.gateway.status_report import picture
from jackline.journal import JournalHealth
from jackline.lane_id import LaneId
from jackline.providers.settings import CostClass, Credential, UpstreamKind, UpstreamSettings
from jackline.testing import Step
from tests.gateway.desk_world import MODEL, THROTTLED, World, play, wall

FIRST = UpstreamSettings("first", "https://first.example")
SECOND = UpstreamSettings(
    "second",
    "https://second.example",
    credential=Credential.API_KEY,
    secret="sk-two",  # noqa: S106
)
CHEAPER = UpstreamSettings(
    "cheaper",
    "https://cheaper.example",
    credential=Credential.NONE,
    models={"claude-opus-*": "claude-haiku-4-5"},
)
GPT = UpstreamSettings(
    "gpt",
    "https://gpt.example",
    kind=UpstreamKind.OPENAI_CHAT,
    credential=Credential.NONE,
    models={"claude-*": "gpt-5.5"},
)
ME = Identity("s1", None, None, None, Client(True, True))
BROKEN = Step(status=500, body=b"{}", after=0.2)
OVERLOADED = Step(
    status=529,
    body=b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}',
    after=0.2,
)
REFUSED = Step(breaks=ConnectionRefusedError(111, "Connection refused"), after=0.1)


def settings(*upstreams: UpstreamSettings, never: tuple[str, ...] = ()) -> GatewaySettings:
    return replace(GatewaySettings(), upstreams=upstreams, never_degrade=never)


def ladder(
    chooser: RouteChooser, model: str = MODEL, who: Identity = ME
) -> list[tuple[str, str, bool]]:
    return [(u.name, name, degrades) for u, name, degrades in chooser.routes(model, who, 0.0)]


def test_the_same_model_elsewhere_comes_before_another_model() -> None:
    chooser = RouteChooser()
    chooser.use([CHEAPER, FIRST, GPT, SECOND])
    assert ladder(chooser) == [
        ("first", MODEL, False),
        ("second", MODEL, False),
        ("cheaper", "claude-haiku-4-5", True),
        ("gpt", "gpt-5.5", True),
    ]


def test_a_foreign_family_is_asked_only_for_what_the_user_has_mapped() -> None:
    chooser = RouteChooser()
    chooser.use([FIRST, replace(GPT, models={"claude-sonnet-*": "gpt-5.5"})])
    assert ladder(chooser) == [("first", MODEL, False)]
    chooser.use([replace(GPT, models={})])
    assert ladder(chooser) == [("gpt", MODEL, False)], (
        "it may say itself that it knows no such model"
    )


@pytest.mark.parametrize("name", ["claude-opus-4.8", "anthropic/claude-opus-4.8"])
def test_a_bridges_own_spelling_of_the_same_model_is_the_same_model(name: str) -> None:
    chooser = RouteChooser()
    chooser.use([FIRST, replace(SECOND, models={"claude-opus-4-8": name})])
    assert ladder(chooser)[1] == ("second", name, False)


def test_a_clouds_own_name_of_the_same_model_is_the_same_model() -> None:
    bedrock = UpstreamSettings(
        "aws", kind=UpstreamKind.BEDROCK, models={"claude-opus-4-8": f"us.anthropic.{MODEL}-v1:0"}
    )
    chooser = RouteChooser()
    chooser.use([FIRST, bedrock])
    assert ladder(chooser)[1] == ("aws", f"us.anthropic.{MODEL}-v1:0", False)


def test_of_places_with_the_same_model_the_cheaper_comes_first_and_quality_before_cost() -> None:
    chooser = RouteChooser()
    dear = replace(FIRST, cost_class=CostClass.HIGH)
    free = replace(GPT, cost_class=CostClass.FREE)
    chooser.use([dear, free, CHEAPER, SECOND])
    assert [name for name, _, _ in ladder(chooser)] == ["second", "first", "gpt", "cheaper"]


def test_clients_of_openai_go_to_upstreams_of_their_dialect_by_the_same_rules() -> None:
    chooser = RouteChooser()
    router = replace(GPT, name="router", models={"gpt-*": "openai/gpt-5.5"})
    local = replace(GPT, name="local", models={"gpt-*": "qwen3-coder"})
    cheap = replace(GPT, name="cheap", cost_class=CostClass.LOW)
    chooser.use(
        [FIRST, local, GPT, router, cheap, replace(GPT, kind=UpstreamKind.OPENAI_RESPONSES)]
    )
    found = chooser.routes("gpt-5.5", ME, 0.0, "openai-chat")
    assert [(u.name, name, degrades) for u, name, degrades in found] == [
        ("cheap", "gpt-5.5", False),
        ("gpt", "gpt-5.5", False),
        ("router", "openai/gpt-5.5", False),
        ("local", "qwen3-coder", True),
    ]
    chooser.orders = (RouteOverride("router", session="s1"),)
    assert chooser.routes("gpt-5.5", ME, 0.0, "openai-chat")[0].upstream.name == "router"
    chooser.use([FIRST])
    assert chooser.routes("gpt-5.5", ME, 0.0, "openai-chat") == ()


@pytest.mark.parametrize(
    "mark", ["claude-opus-*", "tag:careful", "agent:review-*", "class:careful"]
)
def test_what_is_marked_is_never_degraded(mark: str) -> None:
    chooser = RouteChooser()
    chooser.use([FIRST, SECOND, GPT], [mark])
    marked = replace(ME, tag="careful", agent="review-7", class_="careful")
    assert [name for name, _, _ in ladder(chooser, who=marked)] == ["first", "second"]
    other = ladder(chooser, model="claude-sonnet-4-6")
    assert ("gpt", "gpt-5.5", True) in other


def test_an_order_by_hand_comes_first_for_what_it_names_until_it_ends() -> None:
    chooser = RouteChooser()
    chooser.use([FIRST, SECOND, GPT])
    chooser.orders = (RouteOverride("gpt", model="claude-opus-*", session="s1", until=10.0),)
    assert ladder(chooser)[0] == ("gpt", "gpt-5.5", False)
    assert ladder(chooser, model="claude-sonnet-4-6")[0][0] == "first"
    assert ladder(chooser, who=replace(ME, session="s2"))[0][0] == "first"
    assert chooser.routes(MODEL, ME, 11.0)[0].upstream.name == "first"


def test_an_outage_moves_calls_to_the_same_model_elsewhere_unseen() -> None:
    async def scene(world: World) -> None:
        clients = [world.ask(agent=f"a{n}") for n in range(12)]
        await world.until_over(*clients, longest=60)
        assert {client.status for client in clients} == {200}
        assert {client.headers["x-jackline-lane"] for client in clients} == {f"second/{MODEL}"}

    world = play({"first": [BROKEN]}, scene, settings(FIRST, SECOND, GPT))
    assert not any(lane.startswith("gpt/") for lane in world.asked()), "no need for another model"


def test_another_family_is_the_last_resort_and_is_visible() -> None:
    async def scene(world: World) -> None:
        client = world.ask()
        await world.until_over(client, longest=120)
        assert client.status == 200
        assert client.headers["x-jackline-lane"] == "gpt/gpt-5.5"

    world = play({"first": [BROKEN], "second": [REFUSED]}, scene, settings(FIRST, SECOND, GPT))
    assert str(world.ended[0].lane) == "gpt/gpt-5.5"


def test_a_throttle_is_no_reason_for_another_model() -> None:
    async def scene(world: World) -> None:
        client = world.ask()
        await world.until_over(client, longest=120)
        assert client.headers["x-jackline-lane"] == f"first/{MODEL}"

    play({"first": [THROTTLED, THROTTLED, Step()]}, scene, settings(FIRST, GPT))


@pytest.mark.parametrize("agents", [1, 12])
def test_an_overload_moves_calls_to_the_same_model_elsewhere_at_once(agents: int) -> None:
    async def scene(world: World) -> None:
        before = world.ask("all is well")
        await world.until_over(before)
        clients = [world.ask(agent=f"a{n}") for n in range(agents)]
        await world.until_over(*clients, longest=10)
        assert {each.lane and each.lane.upstream for each in world.ended[1:]} == {"second"}

    play({"first": [Step(), OVERLOADED]}, scene, settings(FIRST, SECOND, GPT))


def test_an_overload_that_passes_is_no_reason_for_another_model_and_one_that_lasts_is() -> None:
    async def scene(world: World) -> None:
        client = world.ask()
        await world.until_over(client, longest=200)

    world = play({"first": [*[OVERLOADED] * 4, Step()]}, scene, settings(FIRST, GPT))
    assert world.ended[0].lane is not None
    assert world.ended[0].lane.upstream == "first"
    world = play({"first": [OVERLOADED]}, scene, settings(FIRST, GPT))
    assert world.ended[0].lane is not None
    assert world.ended[0].lane.upstream == "gpt"


def test_no_pattern_is_translated_for_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library forgets patterns beyond some thousands, and would compile each of them anew."""
    chooser = RouteChooser()
    never = [f"model-{number}-*" for number in range(40_000)]
    chooser.use([FIRST, CHEAPER], [*never, "tag:night"])
    ladder(chooser)
    translated: list[str] = []
    plain = fnmatch.translate

    def counted(pattern: str) -> str:
        translated.append(pattern)
        return plain(pattern)

    monkeypatch.setattr(fnmatch, "translate", counted)
    assert len(ladder(chooser)) == 2
    assert translated == []
    assert len(ladder(chooser, who=replace(ME, tag="night"))) == 1


def test_never_degraded_means_waiting_instead() -> None:
    async def scene(world: World) -> None:
        client = world.ask()
        await world.until_over(client, longest=300)
        assert client.headers.get("x-jackline-lane") == f"first/{MODEL}"
        assert client.status == 200

    broken_for_a_while = [BROKEN] * 8
    world = play(
        {"first": [*broken_for_a_while, Step()]}, scene, settings(FIRST, GPT, never=(MODEL,))
    )
    assert set(world.asked()) == {f"first/{MODEL}"}


def test_a_wall_at_one_upstream_is_none_at_another() -> None:
    async def scene(world: World) -> None:
        clients = [world.ask(agent=f"a{n}") for n in range(4)]
        await world.until_over(*clients, longest=60)
        assert {client.status for client in clients} == {200}

    play({"first": [wall(5 * 3600)]}, scene, settings(FIRST, SECOND))


def test_an_order_moves_calls_that_wait_already_and_survives_a_restart() -> None:
    kept: list[bytes] = []

    async def scene(world: World) -> None:
        orders = OperatorOrders(world.desk, kept.append)
        client = world.ask()
        await world.pass_time(30)
        assert not client.over
        orders.use({"upstream": "gpt", "seconds": 3600})
        await world.until_over(client, longest=5)
        # It was held already: only the lane of its end tells where it came from.
        assert world.ended[0].lane is not None
        assert world.ended[0].lane.upstream == "gpt"
        again = OperatorOrders(world.desk, kept.append)
        orders.back({})
        assert not world.desk.chooser.orders
        again.recall(kept[0])
        assert [order.upstream for order in world.desk.chooser.orders] == ["gpt"]
        await world.pass_time(3700)
        again.recall(kept[0])
        assert not world.desk.chooser.orders, "it has ended"

    play({"first": [THROTTLED]}, scene, settings(FIRST, GPT, never=("claude-nothing",)))
    assert json.loads(kept[0])["orders"][0]["upstream"] == "gpt"


def test_an_order_counts_in_the_middle_of_a_turn_too() -> None:
    async def scene(world: World) -> None:
        orders = OperatorOrders(world.desk, lambda _: None)
        orders.use({"upstream": "second"})
        first = world.ask()
        await world.until_over(first)
        orders.use({"upstream": "first"})
        result = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "done"}]
        body = {"model": MODEL, "messages": [{"role": "user", "content": result}], "stream": True}
        headers = {"x-api-key": "sk-ant-one", "X-Claude-Code-Session-Id": "s1"}
        then = world.send(json.dumps(body).encode(), headers)
        await world.until_over(then)
        assert [c.headers["x-jackline-lane"] for c in (first, then)] == [
            f"second/{MODEL}",
            f"first/{MODEL}",
        ]

    play({}, scene, settings(FIRST, SECOND))


def test_orders_that_make_no_sense_change_nothing() -> None:
    async def scene(world: World) -> None:
        orders = OperatorOrders(world.desk, lambda _: None)
        for bad in ({"upstream": "none"}, {}, {"upstream": "gpt", "seconds": -1}):
            with pytest.raises(BadArgumentError):
                orders.use(bad)
        with pytest.raises(BadArgumentError):
            orders.pause({"lane": "nothing/*"})
        orders.recall(b"not json")
        for strange in (b'[{"odd": 1}]', b'{"orders": [{"odd": 1}], "paused": []}', b"{}"):
            orders.recall(strange)
        assert not world.desk.chooser.orders

    play({}, scene, settings(FIRST, GPT))


def test_a_paused_lane_gets_nothing_until_it_is_resumed() -> None:
    async def scene(world: World) -> None:
        orders = OperatorOrders(world.desk, lambda _: None)
        before = world.ask("one")
        await world.until_over(before)
        orders.pause({"lane": "first/*"})
        client = world.ask("two")
        await world.pass_time(10)
        assert len(world.asked()) == 1
        carried = world.desk.calls[0].carried
        assert carried is not None
        waiting = world.carrier.waiting(carried)
        assert waiting is not None
        assert "paused by hand" in waiting.why
        (lane,) = told(world).lanes
        assert "paused by hand" in lane.why
        orders.resume({"lane": f"first/{MODEL}"})
        await world.until_over(client, longest=5)

    play({}, scene, settings(FIRST))


@pytest.mark.parametrize("name", ["first", "first/*", f"first/{MODEL}"])
def test_an_upstream_is_paused_before_its_first_use(name: str) -> None:
    kept: list[bytes] = []

    async def before(world: World) -> None:
        paused = OperatorOrders(world.desk, kept.append).pause({"lane": name})
        assert paused == {"lanes": [], "paused": True, "names": [name]}
        client = world.ask()
        await world.until_over(client)
        assert client.headers["x-jackline-lane"] == f"second/{MODEL}"

    async def after(world: World) -> None:
        orders = OperatorOrders(world.desk, kept.append)
        orders.recall(kept[0])
        client = world.ask("one")
        await world.until_over(client)
        assert client.headers["x-jackline-lane"] == f"second/{MODEL}"
        assert orders.resume({"lane": "first"})["names"] == []
        client = world.ask("two", session="s2")
        await world.until_over(client)
        assert client.headers["x-jackline-lane"] == f"first/{MODEL}"

    play({}, before, settings(FIRST, SECOND))
    play({}, after, settings(FIRST, SECOND))


def test_a_lane_that_is_resumed_leaves_the_rest_of_its_upstream_paused() -> None:
    async def scene(world: World) -> None:
        orders = OperatorOrders(world.desk, lambda _: None)
        await world.until_over(world.ask())
        orders.pause({"lane": "first"})
        assert orders.resume({"lane": f"first/{MODEL}"})["names"] == ["first"]
        with pytest.raises(BadArgumentError, match="no lane is called 'third'"):
            orders.pause({"lane": "third"})

    play({}, scene, settings(FIRST, SECOND))


def test_a_pause_survives_a_restart() -> None:
    kept: list[bytes] = []

    async def before(world: World) -> None:
        await world.until_over(world.ask())
        OperatorOrders(world.desk, kept.append).pause({"lane": "first/*"})

    async def after(world: World) -> None:
        OperatorOrders(world.desk, kept.append).recall(kept[0])
        client = world.ask()
        await world.until_over(client)
        assert client.headers["x-jackline-lane"] == f"second/{MODEL}"

    play({}, before, settings(FIRST, SECOND))
    play({}, after, settings(FIRST, SECOND))


def test_orders_and_stand_ins_are_told() -> None:
    async def scene(world: World) -> None:
        for words in ("one", "two"):
            client = world.ask(words)
            await world.until_over(client, longest=120)
            assert client.headers["x-jackline-lane"] == "gpt/gpt-5.5"
        orders = OperatorOrders(world.desk, lambda _: None)
        orders.use({"upstream": "first", "model": "claude-haiku-*", "seconds": 1800})
        ordered, stood_in = told(world).notes
        assert ordered == "by hand, for 30 min: models claude-haiku-* to first"
        assert stood_in.startswith(
            f"another model stood in: gpt/gpt-5.5 for {MODEL}, 2 times, last "
        )
        await world.pass_time(3700)
        assert told(world).notes == ()

    play({"first": [BROKEN]}, scene, settings(FIRST, GPT))


def told(world: World) -> GatewayStatus:
    return picture(
        world.desk,
        JournalHealth(True, "", 0, 0, None),
        url="",
        started=0.0,
        connections=0,
        at=world.clock.now(),
    )


def test_a_key_of_ours_that_is_configured_later_is_withheld_from_an_unknown_client_too() -> None:
    """It was taken in when there was nothing to withhold."""

    async def scene(world: World) -> None:
        junk = LaneId("first", MODEL, world.book.fingerprint(FIRST, b"junk"))
        world.upstream.scripts = {junk: [BROKEN] * 12 + [Step()]}
        client = world.ask(headers={"x-api-key": "junk"})
        await world.pass_time(3)
        assert world.asked()
        after = settings(FIRST, SECOND)
        world.book.use(after.upstreams)
        world.desk.use(after)
        world.desk.choose_again()
        await world.until_over(client, longest=1000)
        assert client.status == 200

    world = play({}, scene, settings(FIRST))
    assert set(world.asked()) == {f"first/{MODEL}"}
