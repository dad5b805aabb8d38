"""A caller with a bad key, with none, or with a login that belongs to another vendor.

Rules: (1) whoever the vendor refuses, and whoever shows nothing, is not served with the user's own
key; (2) what a client logs in with reaches its own vendor and nobody else, under whatever name,
path or query it was sent; (3) every upstream is a real server on a loopback port that keeps each
byte it got.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jackline.assembly import Service
from jackline.gateway.placement import RouteOverride
from jackline.gateway.settings import HoldSettings, ListenSettings
from jackline.providers.settings import Credential, UpstreamKind, UpstreamSettings
from tests.assembly.world import (
    MODEL,
    Asked,
    Got,
    Pair,
    answered,
    ask,
    config_for,
    http,
    provider,
    question,
    request,
    run,
    until,
)
from tests.gateway.jumping_loop import JumpingLoop, on_jumping_loop
from tests.planted import BEARER, KEY, WORD
from tests.upstream.loopback import Server, Wire

JSON = (b"Content-Type", b"application/json")
OPENAI_LOGIN = ".".join(
    base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
    for part in ({"alg": "RS256"}, {"iss": "https://auth.openai.com", "sub": WORD}, {"x": 1})
)
SPOKEN = Path(__file__).parent.parent / "dialects" / "translation" / "data"
OPENAI_KEY = f"sk-proj-{WORD}-{'c' * 40}"
OVERLOADED = http(
    529, b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', JSON
)
QUOTA = http(
    429,
    b'{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your '
    b"account's rate limit. Please try again later.\"}}",
    JSON,
    (b"anthropic-ratelimit-unified-status", b"rejected"),
    (b"anthropic-ratelimit-unified-representative-claim", b"five_hour"),
    (b"anthropic-ratelimit-unified-reset", b"4102444800"),
)


def refusal(status: int, words: str = "invalid x-api-key") -> bytes:
    kind = "authentication_error" if status == 401 else "permission_error"
    error = {"type": "error", "error": {"type": kind, "message": words}}
    return http(status, json.dumps(error).encode(), JSON)


# A call in the middle of a turn, as its caller says.
IN_TURN: dict[str, Any] = {
    "messages": [
        {"role": "user", "content": "go on"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t", "name": "x", "input": {}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]},
    ]
}
REJECTIONS = [
    refusal(401),
    refusal(403, "Your account does not have access to this model."),
    refusal(401, "The authentication service is unavailable: service disruption"),
    http(403, b"<html>Request blocked</html>", (b"Content-Type", b"text/html")),
    http(401, b"", (b"WWW-Authenticate", b"Bearer")),
]


def theirs(url: str, name: str = "anthropic", kind: str = "anthropic") -> UpstreamSettings:
    """An upstream that gets the client's own credential."""
    return UpstreamSettings(name=name, url=url, kind=UpstreamKind(kind))


def ours(url: str, name: str = "ours", kind: str = "anthropic", **more: Any) -> UpstreamSettings:
    """An upstream that is called with the user's own key."""
    upstream = UpstreamSettings(
        name=name,
        url=url,
        kind=UpstreamKind(kind),
        credential=Credential.BEARER if kind != "anthropic" else Credential.API_KEY,
        secret="users-own-key",  # noqa: S106 -- no secret
    )
    return replace(upstream, **more)


@asynccontextmanager
async def gateway(
    folder: Path, *upstreams: UpstreamSettings, other: float = 0.5
) -> AsyncIterator[Service]:
    config = config_for(folder, "", hold=HoldSettings(quota=0.0, other=other))
    settings = replace(config.gateway, upstreams=upstreams, listen=ListenSettings(port=0))
    async with Service(replace(config, gateway=settings)) as service:
        yield service


def call(key: str | None = KEY, *headers: Pair, session: str | None = None, **more: Any) -> bytes:
    told = () if session is None else ((b"x-claude-code-session-id", session.encode()),)
    credential = None if key is None else key.encode()
    return request(b"POST", b"/v1/messages", question(**more), *told, *headers, key=credential)


# --- a bad key, or none -------------------------------------------------------------------------


@pytest.mark.parametrize("rejection", REJECTIONS, ids=["401", "403", "healing", "html", "empty"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_whose_key_is_rejected_is_not_served_with_ours(
    tmp_path: Path, rejection: bytes, stream: bool
) -> None:
    async def main() -> None:
        async with (
            provider(rejection) as (vendor, vendor_url),
            provider(answered()) as (mine, mine_url),
            gateway(tmp_path, theirs(vendor_url), ours(mine_url)) as service,
        ):
            got = await ask(service.url, call(stream=stream))
            assert got.status in (401, 403, 502)
            assert vendor.asked
            assert mine.asked == []

    run(main())


def test_a_rejected_client_is_not_served_with_ours_by_another_model_either(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            provider(refusal(401)) as (_, vendor_url),
            provider(answered()) as (mine, mine_url),
            gateway(
                tmp_path,
                theirs(vendor_url),
                ours(mine_url, kind="openai-chat", models={"claude-*": "gpt-5.5"}),
            ) as service,
        ):
            assert (await ask(service.url, call())).status == 401
            assert mine.asked == []

    run(main())


def test_a_rejected_key_is_remembered_until_the_vendor_takes_it(tmp_path: Path) -> None:
    """Else whoever was refused would only have to wait until the vendor is down."""

    async def main() -> None:
        answers = (refusal(401), OVERLOADED)
        async with (
            provider(*answers) as (vendor, vendor_url),
            provider(answered()) as (mine, mine_url),
            gateway(tmp_path, theirs(vendor_url), ours(mine_url)) as service,
        ):
            assert (await ask(service.url, call())).status == 401
            assert (await ask(service.url, call())).status in (503, 529)
            assert mine.asked == []
            # Another client is not blamed for it: whom the vendor has not judged goes on.
            assert (await ask(service.url, call(KEY + "other"))).status == 200
            assert len(mine.asked) == 1
            vendor.answers = [answered()]
            vendor.asked.clear()
            await until_served(service, call())
            vendor.answers = [OVERLOADED]
            mine.asked.clear()
            await until_served(service, call())
            assert len(mine.asked) == 1

    run(main())


async def until_served(service: Service, raw: bytes) -> None:
    async with asyncio.timeout(60.0):
        while (await ask(service.url, raw)).status != 200:  # noqa: ASYNC110 -- asked from outside
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("answer", [OVERLOADED, QUOTA, refusal(401)], ids=["down", "quota", "401"])
def test_a_client_without_any_key_is_not_served_with_ours_when_the_vendor_fails(
    tmp_path: Path, answer: bytes
) -> None:
    async def main() -> None:
        async with (
            provider(answer) as (_, vendor_url),
            provider(answered()) as (mine, mine_url),
            gateway(tmp_path, theirs(vendor_url), ours(mine_url)) as service,
        ):
            got = await ask(service.url, call(None))
            assert got.status in (401, 429, 503, 529)
            assert mine.asked == []

    run(main())


def test_a_bad_key_does_not_follow_a_conversation_to_where_ours_pays(tmp_path: Path) -> None:
    """A session's name is no secret: who names it must still be taken by the vendor."""

    async def main() -> None:
        async with (
            provider(QUOTA, refusal(401)) as (vendor, vendor_url),
            provider(answered()) as (mine, mine_url),
            gateway(tmp_path, theirs(vendor_url), ours(mine_url)) as service,
        ):
            assert (await ask(service.url, call(session="s-1", **IN_TURN))).status == 200
            assert len(mine.asked) == 1
            got = await ask(service.url, call(KEY + "bad", session="s-1", **IN_TURN))
            assert got.status == 401
            assert (len(vendor.asked), len(mine.asked)) == (2, 1)

    run(main())


def test_a_rejected_client_waits_for_nothing_whatever_the_vendor_says(tmp_path: Path) -> None:
    """Words about an outage in a 401 made its call wait, and an order or a long wait move it."""

    async def main() -> None:
        healing = refusal(401, "The authentication service is unavailable: service disruption")
        async with (
            provider(healing) as (vendor, vendor_url),
            provider(answered()) as (mine, mine_url),
            gateway(tmp_path, theirs(vendor_url), ours(mine_url), other=60.0) as service,
        ):
            for number in range(1, 3):
                assert (await ask(service.url, call())).status == 401
                assert len(vendor.asked) == number
                service.desk.choose_again()
            assert mine.asked == []

    run(main())


@pytest.mark.parametrize(
    ("method", "target"),
    [
        (b"POST", b"/v1/messages/count_tokens"),
        (b"GET", b"/v1/models"),
        (b"GET", b"/v1/files"),
        (b"POST", b"/v1/unknown"),
    ],
)
def test_side_calls_of_a_rejected_client_go_nowhere_else(
    tmp_path: Path, method: bytes, target: bytes
) -> None:
    async def main() -> None:
        async with (
            provider(refusal(401)) as (_, vendor_url),
            provider(answered()) as (mine, mine_url),
            gateway(tmp_path, theirs(vendor_url), ours(mine_url)) as service,
        ):
            body = question() if method == b"POST" else b""
            assert (await ask(service.url, request(method, target, body))).status == 401
            assert mine.asked == []

    run(main())


def test_the_user_may_write_down_that_an_upstream_serves_rejected_clients(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            provider(refusal(401)) as (_, vendor_url),
            provider(answered()) as (mine, mine_url),
            gateway(
                tmp_path, theirs(vendor_url), ours(mine_url, accept_rejected_clients=True)
            ) as service,
        ):
            assert (await ask(service.url, call())).status == 200
            assert (await ask(service.url, call(None))).status == 200
            assert len(mine.asked) == 2

    run(main())


def test_who_has_a_good_key_is_served_with_ours_when_its_quota_is_used_up(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            provider(QUOTA) as (_, vendor_url),
            provider(answered()) as (mine, mine_url),
            gateway(tmp_path, theirs(vendor_url), ours(mine_url)) as service,
        ):
            assert (await ask(service.url, call())).status == 200
            assert len(mine.asked) == 1

    run(main())


def test_an_upstream_of_the_users_own_that_comes_first_serves_this_machine_as_before(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with (
            provider(answered()) as (mine, mine_url),
            provider(refusal(401)) as (_, vendor_url),
            gateway(tmp_path, ours(mine_url), theirs(vendor_url)) as service,
        ):
            assert (await ask(service.url, call(None))).status == 200
            assert len(mine.asked) == 1

    run(main())


# --- a key that no vendor has accepted yet -------------------------------------------------------


def error(status: int, kind: str, words: str = "no", *headers: Pair) -> bytes:
    body = {"type": "error", "error": {"type": kind, "message": words}}
    return http(status, json.dumps(body).encode(), JSON, *headers)


HEALTHY = {
    "400": error(400, "invalid_request_error"),
    "credit": error(400, "invalid_request_error", "Your credit balance is too low"),
    "404": error(404, "not_found_error", "model: claude-x"),
    "404 quota words": error(404, "not_found_error", "model: You've hit your usage limit"),
    "404 empty": http(404, b""),
    "404 html": http(404, b"<html>nope</html>", (b"Content-Type", b"text/html")),
    "405": error(405, "invalid_request_error", "Method Not Allowed"),
    "408": http(408, b""),
    "413": http(413, b"<html>too large</html>", (b"Content-Type", b"text/html")),
    "415": http(415, b""),
    "421": http(421, b""),
    "302": http(302, b"", (b"Location", b"/elsewhere")),
    "429": error(429, "rate_limit_error", "slow down", (b"retry-after", b"1")),
    "431": http(431, b"<html>headers</html>", (b"Content-Type", b"text/html")),
}


@pytest.mark.parametrize("answer", HEALTHY.values(), ids=HEALTHY)
def test_a_key_that_nobody_has_accepted_is_not_served_with_ours_by_a_vendor_that_works(
    tmp_path: Path, answer: bytes
) -> None:
    async def main() -> None:
        async with (
            provider(answer) as (vendor, vendor_url),
            provider(answered()) as (mine, mine_url),
            gateway(tmp_path, theirs(vendor_url), ours(mine_url)) as service,
        ):
            await ask(service.url, call())
            assert vendor.asked
            # Nor later, when the vendor is down: it has had its say.
            vendor.answers = [OVERLOADED]
            await ask(service.url, call())
            assert mine.asked == []

    run(main())


@pytest.mark.parametrize(
    "target",
    [b"//v1/messages", b"/zzz/v1/messages", b"/v1/messages/v1/messages", b"/t/tag/z/v1/messages"],
)
@pytest.mark.parametrize("answer", [error(404, "not_found_error"), OVERLOADED], ids=["404", "529"])
def test_an_odd_path_does_not_bring_an_unknown_key_to_ours(
    tmp_path: Path, target: bytes, answer: bytes
) -> None:
    async def main() -> None:
        async with (
            provider(answer) as (_, vendor_url),
            provider(answered()) as (mine, mine_url),
            gateway(tmp_path, theirs(vendor_url), ours(mine_url)) as service,
        ):
            raw = request(b"POST", target, question(), key=b"junk")
            await ask(service.url, raw)
            assert mine.asked == []

    run(main())


@pytest.mark.parametrize(
    "spelling",
    [
        (b"x-api-key", b"known "),
        (b"x-api-key", b"known\t"),
        (b"Authorization", b"Bearer known"),
        (b"Authorization", b"bearer   known "),
        (b"Authorization", b"known"),
    ],
)
def test_a_rejected_key_in_another_spelling_is_the_same_key(tmp_path: Path, spelling: Pair) -> None:
    async def main() -> None:
        async with (
            provider(refusal(401), OVERLOADED) as (_, vendor_url),
            provider(answered()) as (mine, mine_url),
            gateway(tmp_path, theirs(vendor_url), ours(mine_url)) as service,
        ):
            assert (await ask(service.url, call("known"))).status == 401
            assert (await ask(service.url, call(None, spelling))).status in (503, 529)
            assert mine.asked == []

    run(main())


@pytest.mark.parametrize("nothing", [(b"x-api-key", b" "), (b"Authorization", b"Bearer ")])
def test_a_blank_key_is_none(tmp_path: Path, nothing: Pair) -> None:
    async def main() -> None:
        async with (
            provider(OVERLOADED) as (_, vendor_url),
            provider(answered()) as (mine, mine_url),
            gateway(tmp_path, theirs(vendor_url), ours(mine_url)) as service,
        ):
            assert (await ask(service.url, call(None, nothing))).status in (503, 529)
            assert mine.asked == []

    run(main())


def test_an_unknown_key_gains_nothing_by_many_calls_at_once(tmp_path: Path) -> None:
    """What has no room at its own upstream would else be sent on to where ours pays."""

    async def main() -> None:
        async with (
            provider(b"") as (vendor, vendor_url),
            provider(answered()) as (mine, mine_url),
            gateway(tmp_path, theirs(vendor_url), ours(mine_url), other=60.0) as service,
        ):
            asking = [
                asyncio.ensure_future(ask(service.url, call("junk", session=f"s-{number}")))
                for number in range(60)
            ]
            await until(lambda: len(service.desk.calls) == 60)
            await until(lambda: any(each.waiting for each in service.desk.calls))
            await until(lambda: bool(vendor.asked))
            assert mine.asked == []
            for each in asking:
                each.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    run(main())


def test_an_account_that_a_body_names_is_not_believed_of_an_unknown_login(tmp_path: Path) -> None:
    """The account's wall is known, and would send whoever names it on to where ours pays."""
    account: dict[str, Any] = {"metadata": {"user_id": json.dumps({"account_uuid": "1111"})}}

    async def main() -> None:
        async with (
            provider(QUOTA) as (vendor, vendor_url),
            provider(answered()) as (mine, mine_url),
            gateway(tmp_path, theirs(vendor_url), ours(mine_url)) as service,
        ):
            good = (b"Authorization", b"Bearer good")
            for _ in range(2):
                assert (await ask(service.url, call(None, good, **account))).status == 200
            assert len(mine.asked) == 2
            vendor.answers = [refusal(401)]
            vendor.asked.clear()
            junk = (b"Authorization", b"Bearer junk")
            assert (await ask(service.url, call(None, junk, **account))).status == 401
            assert len(vendor.asked) == 1
            assert len(mine.asked) == 2

    run(main())


def test_a_client_that_was_accepted_goes_on_after_a_restart_in_an_outage(tmp_path: Path) -> None:
    """Also with an answer that would not let an unknown key go on."""

    async def main() -> None:
        throttled = HEALTHY["429"]
        async with (
            provider(answered()) as (vendor, vendor_url),
            provider(answered()) as (mine, mine_url),
        ):
            upstreams = theirs(vendor_url), ours(mine_url)
            async with gateway(tmp_path, *upstreams) as service:
                assert (await ask(service.url, call())).status == 200
            assert mine.asked == []
            vendor.answers = [error(404, "not_found_error", "model: claude-x"), throttled]
            async with gateway(tmp_path, *upstreams) as service:
                assert (await ask(service.url, call())).status == 200
                assert len(mine.asked) == 1
                await ask(service.url, call(KEY + "other"))
                assert len(mine.asked) == 1

    run(main())
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert KEY.encode() not in kept


def test_an_unknown_client_is_still_served_while_its_vendor_is_down(tmp_path: Path) -> None:
    async def main() -> None:
        for number, answer in enumerate((OVERLOADED, error(500, "api_error"), QUOTA)):
            async with (
                provider(answer) as (_, vendor_url),
                provider(answered()) as (mine, mine_url),
                gateway(
                    tmp_path / str(number), theirs(vendor_url), ours(mine_url), other=30.0
                ) as service,
            ):
                assert (await ask(service.url, call())).status == 200
                assert len(mine.asked) == 1
        async with provider(answered()) as (mine, mine_url):
            nobody = theirs("http://127.0.0.1:9")
            async with gateway(tmp_path / "9", nobody, ours(mine_url), other=30.0) as service:
                assert (await ask(service.url, call())).status == 200
                assert len(mine.asked) == 1

    run(main())


# --- an outage that a caller has made itself ------------------------------------------------------

POISON = (b"x-poison", b"1")
SELF_MADE = {
    "500": error(500, "api_error"),
    "529": OVERLOADED,
    "502 html": http(502, b"<html>bad gateway</html>", (b"Content-Type", b"text/html")),
    "504": http(504, b""),
    "no answer": b"",
    "not http": b"nonsense\r\n\r\n",
    "broken off": http(200, b'{"type":', JSON, (b"Content-Length", b"999"), length=False),
    "a page": http(200, b"<html>log in</html>", (b"Content-Type", b"text/html")),
}


@asynccontextmanager
async def vendor_that_works(
    poisoned: bytes, unknown: bytes = refusal(401)
) -> AsyncIterator[tuple[list[Asked], str]]:
    """Accepts one key, refuses all others, and fails where a header tells it to."""
    asked: list[Asked] = []

    async def serve(wire: Wire) -> None:
        while raw := await wire.request():
            asked.append(Asked(raw))
            if b"x-poison" in raw.lower():
                await wire.say(poisoned)
                wire.close()
                return
            known = asked[-1].header(b"x-api-key") == KEY.encode()
            await wire.say(answered() if known else unknown)

    async with Server(serve) as server:
        yield asked, server.url


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("answer", SELF_MADE.values(), ids=SELF_MADE)
def test_an_unknown_key_is_not_served_with_ours_in_an_outage_that_it_made_itself(
    tmp_path: Path, answer: bytes, stream: bool
) -> None:
    async def main() -> None:
        async with (
            vendor_that_works(answer) as (asked, vendor_url),
            provider(answered()) as (mine, mine_url),
            gateway(tmp_path, theirs(vendor_url), ours(mine_url), other=1.5) as service,
        ):
            got = await ask(service.url, call("junk", POISON, stream=stream))
            assert got.status != 200
            assert any(b"x-poison" in each.raw.lower() for each in asked)
            # The vendor was asked by us, with nothing of the caller's.
            own = [each for each in asked if b"x-poison" not in each.raw.lower()]
            assert own
            assert all(b"junk" not in each.raw for each in own)
            assert mine.asked == []

    run(main())


def test_an_unknown_key_is_not_served_with_ours_by_holding_the_gateway_up(tmp_path: Path) -> None:
    """The vendor answers our probes at once, and this process does not run until they time out."""

    async def play(loop: JumpingLoop) -> None:
        probes = 0

        async def serve(wire: Wire) -> None:
            nonlocal probes
            while raw := await wire.request():
                if not raw.startswith(b"GET"):
                    await wire.say(OVERLOADED)
                    continue
                probes += 1
                loop.ahead += 20.0
                await wire.say(refusal(401))

        async with (
            Server(serve) as vendor,
            provider(answered()) as (mine, mine_url),
            gateway(tmp_path, theirs(vendor.url), ours(mine_url), other=1.5) as service,
        ):
            assert (await ask(service.url, call("junk"))).status != 200
            assert probes > 0
            assert mine.asked == []

    on_jumping_loop(play)


def test_an_unknown_key_is_not_served_with_ours_while_the_vendor_answers_others(
    tmp_path: Path,
) -> None:
    """Also where our own probes fail: what known clients meet counts more."""

    async def main() -> None:
        async with (
            vendor_that_works(OVERLOADED, unknown=OVERLOADED) as (_, vendor_url),
            provider(answered()) as (mine, mine_url),
            gateway(tmp_path, theirs(vendor_url), ours(mine_url), other=1.5) as service,
        ):
            assert (await ask(service.url, call())).status == 200
            assert (await ask(service.url, call("junk", POISON))).status != 200
            assert mine.asked == []

    run(main())


def test_an_unknown_key_is_served_while_known_clients_find_the_vendor_down(tmp_path: Path) -> None:
    """Overload is often one model's alone: whoever shows no key is answered all the time."""

    async def main() -> None:
        async with (
            provider(answered()) as (mine, mine_url),
            vendor_that_works(OVERLOADED) as (asked, vendor_url),
        ):
            upstreams = theirs(vendor_url), ours(mine_url)
            async with gateway(tmp_path, *upstreams) as service:
                assert (await ask(service.url, call())).status == 200
            async with gateway(tmp_path, *upstreams, other=30.0) as service:
                newcomer = asyncio.ensure_future(ask(service.url, call("new login", POISON)))
                await until(lambda: any(each.line.startswith(b"GET") for each in asked))
                assert mine.asked == []
                # Known clients are sent on to ours at once, and try the vendor again now and then.
                while not newcomer.done():
                    assert (await ask(service.url, call(KEY, POISON))).status == 200
                    await asyncio.sleep(0.05)
                assert (await newcomer).status == 200
                failed = [each for each in asked if each.header(b"x-api-key") == KEY.encode()]
                assert len(failed) == 3  # the first was accepted, in the earlier process

    run(main())


# --- when the outage is over ----------------------------------------------------------------------


@pytest.mark.parametrize("model", [MODEL, "claude-fable-9"], ids=["the same", "another"])
def test_an_unknown_key_is_judged_again_as_soon_as_the_outage_is_over(
    tmp_path: Path, model: str
) -> None:
    """Also in the middle of a turn, which is the caller's own word, and for another model."""

    async def main() -> None:
        is_down, judged = True, 0

        async def serve(wire: Wire) -> None:
            nonlocal judged
            while raw := await wire.request():
                if is_down:
                    await wire.say(error(503, "api_error"))
                    continue
                known = Asked(raw).header(b"x-api-key") == KEY.encode()
                judged += b"junk" in raw
                await wire.say(answered() if known else refusal(401))

        async with (
            Server(serve) as vendor,
            provider(answered()) as (mine, mine_url),
            gateway(tmp_path, theirs(vendor.url), ours(mine_url), other=30.0) as service,
        ):
            for number in (1, 2):  # while the vendor is down its turn goes on
                assert (await ask(service.url, call("junk", session="s", **IN_TURN))).status == 200
                assert len(mine.asked) == number
            is_down = False
            for each in {MODEL, model}:
                assert (await ask(service.url, call(model=each))).status == 200
            assert len(mine.asked) == 2
            await asyncio.sleep(0.6)  # for so long the evidence is not looked at again
            again = call("junk", session="s", **IN_TURN, model=model)
            assert (await ask(service.url, again)).status == 401
            assert judged == 1
            assert (await ask(service.url, again)).status == 401
            assert len(mine.asked) == 2

    run(main())


def test_an_unknown_key_is_judged_as_soon_as_an_order_by_hand_has_ended(tmp_path: Path) -> None:
    """What the vendor has accepted stays where it was answered until its turn is over."""

    async def main() -> None:
        async with (
            vendor_that_works(OVERLOADED) as (asked, vendor_url),
            provider(answered()) as (mine, mine_url),
            gateway(tmp_path, theirs(vendor_url), ours(mine_url)) as service,
        ):
            assert (await ask(service.url, call())).status == 200
            service.desk.chooser.orders = (RouteOverride("ours"),)
            for key in ("junk", KEY):
                assert (await ask(service.url, call(key, session="s", **IN_TURN))).status == 200
            assert (len(asked), len(mine.asked)) == (1, 2)
            service.desk.chooser.orders = ()
            assert (await ask(service.url, call("junk", session="s", **IN_TURN))).status == 401
            assert (len(asked), len(mine.asked)) == (2, 2)
            assert (await ask(service.url, call(KEY, session="s", **IN_TURN))).status == 200
            assert (len(asked), len(mine.asked)) == (2, 3)

    run(main())


def test_a_wall_that_a_vendor_did_not_build_opens_ours_after_no_restart(tmp_path: Path) -> None:
    """Words about a quota in another answer park the lane, and a lane is remembered."""

    async def main() -> None:
        words = error(404, "not_found_error", "model: You've hit your usage limit, resets in 3h")
        async with (
            provider(words) as (_, vendor_url),
            provider(answered()) as (mine, mine_url),
        ):
            for _ in range(2):
                async with gateway(tmp_path, theirs(vendor_url), ours(mine_url)) as service:
                    await ask(service.url, call("junk"))
            assert mine.asked == []

    run(main())


def test_a_key_that_another_upstream_accepts_is_still_unknown_to_this_one(tmp_path: Path) -> None:
    """A proxy on this machine may take any key at all."""

    async def main() -> None:
        async with (
            vendor_that_works(OVERLOADED) as (_, vendor_url),
            provider(answered()) as (anybody, anybody_url),
            provider(answered()) as (mine, mine_url),
            gateway(
                tmp_path,
                theirs(vendor_url),
                theirs(anybody_url, "anybody", "openai-chat"),
                ours(mine_url),
                other=1.5,
            ) as service,
        ):
            body = json.dumps({"model": "gpt-5.5", "messages": []}).encode()
            raw = request(b"POST", b"/v1/chat/completions", body, key=b"junk")
            assert (await ask(service.url, raw)).status == 200
            assert len(anybody.asked) == 1
            assert (await ask(service.url, call("junk", POISON))).status != 200
            assert mine.asked == []

    run(main())


@pytest.mark.parametrize(
    ("target", "answer"),
    [
        (b"/public/v1/messages", answered()),
        (b"/v1/../public/v1/messages", answered()),
        (b"/v1/messages", http(200, b'{"status": "ok"}', JSON)),
        (b"/v1/messages", http(204, b"")),
        (b"/v1/chat/completions", http(200, b'{"status": "ok"}', JSON)),
    ],
    ids=["another path", "dots", "no message", "nothing", "no message, chat"],
)
def test_a_path_that_asks_for_no_key_proves_none(
    tmp_path: Path, target: bytes, answer: bytes
) -> None:
    """Vendors have such paths; whoever is answered there is as unknown as before."""

    async def serve(wire: Wire) -> None:
        while raw := await wire.request():
            await wire.say(OVERLOADED if b"x-poison" in raw.lower() else answer)

    async def main() -> None:
        async with (
            Server(serve) as vendor,
            provider(answered()) as (mine, mine_url),
            gateway(
                tmp_path,
                theirs(vendor.url),
                theirs(vendor.url, "chat", "openai-chat"),
                ours(mine_url),
                other=1.5,
            ) as service,
        ):
            body = json.dumps({"model": "gpt-5.5", "messages": []}).encode()
            body = question() if target.endswith(b"messages") else body
            got = await ask(service.url, request(b"POST", target, body, key=b"junk"))
            assert got.status in (200, 204)
            assert (await ask(service.url, call("junk", POISON))).status != 200
            assert mine.asked == []

    run(main())


def spoken(dialect: str, *, stream: bool) -> bytes:
    """A model's answer in one of OpenAI's dialects."""
    chat = dialect == "openai-chat"
    if stream:
        name = "chat.sse" if chat else "responses.sse"
        body = (SPOKEN / "streams" / name).read_bytes()
        return http(200, body, (b"Content-Type", b"text/event-stream"))
    name = "chat_text.json" if chat else "responses_all.json"
    example = json.loads((SPOKEN / "answers" / name).read_bytes())
    return http(200, json.dumps(example["answer"]).encode(), JSON)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses"])
def test_an_answer_of_a_model_proves_the_key_in_every_dialect(
    tmp_path: Path, dialect: str, stream: bool
) -> None:
    async def serve(wire: Wire) -> None:
        while raw := await wire.request():
            down = b"x-poison" in raw.lower()
            await wire.say(OVERLOADED if down else spoken(dialect, stream=stream))

    async def main() -> None:
        async with (
            Server(serve) as vendor,
            provider(spoken(dialect, stream=stream)) as (mine, mine_url),
            gateway(
                tmp_path,
                theirs(vendor.url, "theirs", dialect),
                ours(mine_url, kind=dialect),
                other=1.5,
            ) as service,
        ):
            path = b"/v1/chat/completions" if dialect == "openai-chat" else b"/v1/responses"
            given = {"model": "gpt-5.5", "messages": [], "input": [], "stream": stream}
            body = json.dumps(given).encode()
            for poison in ((), (POISON,)):
                raw = request(b"POST", path, body, *poison, key=OPENAI_KEY.encode())
                assert (await ask(service.url, raw)).status == 200
            assert len(mine.asked) == 1

    run(main())


# --- what the user's own key is never used for ---------------------------------------------------


@pytest.mark.parametrize("login", [b"Bearer junk", None], ids=["junk", "none"])
@pytest.mark.parametrize(
    ("method", "target"),
    [
        (b"GET", b"/v1/files"),
        (b"DELETE", b"/v1/files/abc"),
        (b"GET", b"/v1/models"),
        (b"GET", b"/v1/models/gpt-5"),
        (b"HEAD", b"/v1/models"),
        (b"DELETE", b"/v1/models"),
        (b"POST", b"/v1/organization/admin_api_keys"),
        (b"GET", b"/v1/responses"),
        (b"GET", b"/v1/chat/completions"),
        (b"POST", b"/v1/messages/batches"),
        (b"POST", b"/v1/embeddings"),
        (b"PUT", b"/anything"),
    ],
)
def test_what_is_no_model_call_is_never_paid_with_ours(
    tmp_path: Path, method: bytes, target: bytes, login: bytes | None
) -> None:
    shown = () if login is None else ((b"Authorization", login),)

    async def main() -> None:
        async with (
            provider(refusal(401)) as (_, vendor_url),
            provider(answered()) as (mine, mine_url),
        ):
            chat = ours(mine_url, kind="openai-chat")
            body = question() if method == b"POST" else b""
            raw = request(method, target, body, *shown, key=None)
            async with gateway(tmp_path / "1", theirs(vendor_url), chat) as service:
                assert (await ask(service.url, raw)).status in (401, 403)
                assert mine.asked == []
            if (method, target) == (b"GET", b"/v1/models"):
                return
            for number, kind in enumerate(("openai-chat", "openai-responses", "anthropic")):
                async with gateway(tmp_path / f"o{number}", ours(mine_url, kind=kind)) as service:
                    got = await ask(service.url, raw)
                    assert got.status == 403
                    if method != b"HEAD":
                        assert "only model calls" in got.json["error"]["message"]
                    assert mine.asked == []

    run(main())


ODD_PREFIXES = (
    b"/v1/organizations/api_keys/..",
    b"/v1/files/%2e%2e/%2E.",
    b"/v1/files;",
    b"/v1/files;x=",
    b"/v1/files%3f",
    b"/v1/files%23",
    b"/v1/files\\..",
    b"/v1/files%2f..",
    b"/.",
    b"/",
    b"/zzz",
    b"/t/tag/zzz",
    b"/t/tag/",
)


@pytest.mark.parametrize("prefix", ODD_PREFIXES)
@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        (b"POST", b"/v1/messages", "anthropic"),
        (b"POST", b"/v1/messages/count_tokens", "anthropic"),
        (b"GET", b"/v1/models", "anthropic"),
        (b"POST", b"/v1/chat/completions", "openai-chat"),
        (b"POST", b"/v1/responses", "openai-responses"),
        (b"GET", b"/v1/models", "openai-chat"),
    ],
)
def test_our_key_is_sent_to_the_exact_paths_of_an_api_alone(
    tmp_path: Path, method: bytes, path: bytes, kind: str, prefix: bytes
) -> None:
    """How a vendor reads dots, semicolons or doubled slashes in a path is not known here."""
    body = json.dumps({"model": MODEL, "max_tokens": 5, "input": "x", "messages": []}).encode()

    async def main() -> None:
        async with (
            provider(answered()) as (mine, mine_url),
            gateway(tmp_path, ours(mine_url, kind=kind)) as service,
        ):
            raw = request(method, prefix + path, body if method == b"POST" else b"", key=None)
            got = await ask(service.url, raw)
            assert got.status == 403
            assert mine.asked == []
            # The path itself, with and without a tag, is served as ever.
            for usual in (path, b"/t/tag" + path):
                await ask(service.url, request(method, usual, body, key=None))
            assert len(mine.asked) == 2

    run(main())


def test_an_odd_path_goes_on_with_the_clients_own_credential_alone(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            provider(answered(), OVERLOADED) as (vendor, vendor_url),
            provider(answered()) as (mine, mine_url),
            gateway(tmp_path, theirs(vendor_url), ours(mine_url)) as service,
        ):
            raw = request(b"POST", b"/prefix/v1/messages", question())
            assert (await ask(service.url, raw)).status == 200
            assert vendor.asked[0].line == b"POST /prefix/v1/messages HTTP/1.1"
            # It is known now, and its vendor is down.
            assert (await ask(service.url, raw)).status in (503, 529)
            assert mine.asked == []

    run(main())


def test_a_key_that_was_refused_is_not_served_with_ours_in_another_dialect(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            provider(refusal(401)) as (_, vendor_url),
            provider(refusal(400)) as (mine, mine_url),
        ):
            for number, accepts in enumerate((False, True)):
                chat = ours(mine_url, kind="openai-chat", accept_rejected_clients=accepts)
                async with gateway(tmp_path / str(number), theirs(vendor_url), chat) as service:
                    assert (await ask(service.url, call("junk"))).status == 401
                    for login in ((b"x-api-key", b"junk"), (b"Authorization", b"Bearer junk")):
                        body = json.dumps({"model": "gpt-5.5", "messages": []}).encode()
                        raw = request(b"POST", b"/v1/chat/completions", body, login, key=None)
                        got = await ask(service.url, raw)
                        assert got.status == (400 if accepts else 401)
                    assert bool(mine.asked) is accepts

    run(main())


# --- a login for another vendor -----------------------------------------------------------------

CUSTOM_HEADERS = (
    b"x-api-key",
    b"api-key",
    b"authorization",
    b"proxy-authorization",
    b"x-goog-api-key",
    b"x-goog-user-project",
    b"x-amz-security-token",
    b"ocp-apim-subscription-key",
    b"anthropic-auth-token",
    b"anthropic-api-key",
    b"openai-api-key",
    b"openai-organization",
    b"chatgpt-account-id",
    b"cookie",
    b"x-openrouter-api-key",
    b"helicone-auth",
    b"cf-aig-authorization",
    b"cf-access-client-secret",
    b"x-portkey-api-key",
    b"x-portkey-virtual-key",
    b"x-litellm-api-key",
    b"x-functions-key",
    b"x-stainless-api-key",
    b"x-auth-token",
    b"x-access-token",
    b"x-csrf-token",
    b"x-vercel-oidc-token",
    b"x-some-new-vendors-thing",
    b"baggage",
    b"x-forwarded-for",
    b"anthropic-dangerous-direct-browser-access",
)
QUERIES = (
    b"key",
    b"api_key",
    b"apikey",
    b"API-KEY",
    b"access_token",
    b"token",
    b"auth",
    b"code",
    b"sig",
    b"subscription-key",
    b"x-amz-signature",
    b"k%65y",
)


@pytest.mark.parametrize("kind", ["anthropic", "openai-chat", "openai-responses"])
@pytest.mark.parametrize(
    ("method", "target"),
    [
        (b"POST", b"/v1/messages"),
        (b"POST", b"/v1/messages/count_tokens"),
        (b"POST", b"/v1/chat/completions"),
        (b"POST", b"/v1/responses"),
        (b"GET", b"/v1/models"),
        (b"GET", b"/v1/files"),
        (b"POST", b"/v1/anything/else"),
        (b"POST", b"/t/tag/v1/messages"),
    ],
)
def test_an_upstream_with_a_key_of_its_own_never_sees_the_clients(
    tmp_path: Path, kind: str, method: bytes, target: bytes
) -> None:
    headers = [(name, b"%b-%b" % (WORD.encode(), name)) for name in CUSTOM_HEADERS]
    query = b"&".join(b"%b=%b" % (name, WORD.encode()) for name in QUERIES)
    body = json.dumps({"model": MODEL, "max_tokens": 5, "input": "x", "messages": []}).encode()

    async def main() -> None:
        async with (
            provider(refusal(400, "no")) as (mine, mine_url),
            gateway(tmp_path, ours(mine_url, kind=kind, models={"*": "gpt-5.5"})) as service,
        ):
            raw = request(
                method,
                target + b"?beta=true&limit=2&x=" + KEY.encode() + b"&" + query,
                body if method == b"POST" else b"",
                *headers,
                key=None,
            )
            await ask(service.url, raw)
            for asked in mine.asked:
                assert WORD.encode() not in asked.raw
                assert b"users-own-key" in asked.raw
            if mine.asked and target not in (b"/v1/messages", b"/t/tag/v1/messages"):
                assert b"limit=2" in mine.asked[0].line

    run(main())


@pytest.mark.parametrize("kind", ["bedrock", "vertex"])
def test_clouds_never_see_what_a_client_shows(tmp_path: Path, kind: str) -> None:
    headers = [(name, b"%b-%b" % (WORD.encode(), name)) for name in CUSTOM_HEADERS]

    async def main() -> None:
        async with (
            provider(refusal(400, "no")) as (mine, mine_url),
            gateway(
                tmp_path, ours(mine_url, kind=kind, region="us-east-1", project="p")
            ) as service,
        ):
            body = question("hello")
            target = b"/v1/messages?key=" + WORD.encode()
            await ask(service.url, request(b"POST", target, body, *headers, key=None))
            assert mine.asked
            assert all(WORD.encode() not in asked.raw for asked in mine.asked)

    run(main())


@pytest.mark.parametrize(
    "credential",
    [
        (b"x-api-key", KEY.encode()),
        (b"Authorization", b"Bearer " + BEARER.encode()),
        (b"AUTHORIZATION", b"bearer   " + BEARER.encode()),
        (b"Authorization", b"Basic " + base64.b64encode(b"u:" + KEY.encode())),
        (b"api-key", KEY.encode()),
    ],
    ids=["key", "login", "spaced", "basic", "azure"],
)
@pytest.mark.parametrize(
    ("method", "target"),
    [
        (b"POST", b"/v1/messages"),
        (b"POST", b"/v1/chat/completions"),
        (b"POST", b"/v1/responses"),
        (b"GET", b"/v1/models"),
        (b"GET", b"/api/oauth/profile"),
        (b"POST", b"/v1/embeddings"),
    ],
)
def test_an_anthropic_login_never_reaches_an_upstream_of_openais(
    tmp_path: Path, method: bytes, target: bytes, credential: Pair
) -> None:
    body = question() if method == b"POST" else b""
    raw = request(method, target, body, credential, key=None)

    async def main() -> None:
        async with (
            provider(refusal(400, "no")) as (openai, openai_url),
            provider(answered()) as (mine, mine_url),
        ):
            chat = replace(
                theirs(openai_url, "chat", "openai-chat"), models={"claude-*": "gpt-5.5"}
            )
            responses = theirs(openai_url, "responses", "openai-responses")
            async with gateway(tmp_path / "1", chat, responses) as service:
                got = await ask(service.url, raw)
                assert got.status in (401, 404)
                assert openai.asked == []
            # A login that nobody may take is rejected like any other: ours does not pay for it.
            mine_in_chat = ours(mine_url, kind="openai-chat", models={"claude-*": "gpt-5.5"})
            async with gateway(tmp_path / "2", chat, mine_in_chat) as service:
                await ask(service.url, raw)
                assert openai.asked == []
                assert mine.asked == []

    run(main())


@pytest.mark.parametrize(
    "headers",
    [
        ((b"Authorization", b"Bearer " + OPENAI_LOGIN.encode()),),
        (
            (b"Authorization", b"Bearer opaque-login-of-chatgpt"),
            (b"ChatGPT-Account-Id", b"1"),
        ),
        ((b"Authorization", b"Bearer " + OPENAI_KEY.encode()),),
        ((b"x-api-key", OPENAI_KEY.encode()),),
    ],
    ids=["login", "opaque", "key", "x-api-key"],
)
@pytest.mark.parametrize(
    ("method", "target"),
    [
        (b"POST", b"/v1/messages"),
        (b"POST", b"/v1/responses"),
        (b"GET", b"/v1/models"),
        (b"GET", b"/v1/files"),
        (b"POST", b"/backend-api/codex/responses/compact"),
    ],
)
def test_a_login_of_openais_never_reaches_anthropic(
    tmp_path: Path, method: bytes, target: bytes, headers: tuple[Pair, ...]
) -> None:
    async def main() -> None:
        async with (
            provider(answered()) as (vendor, vendor_url),
            gateway(tmp_path, theirs(vendor_url)) as service,
        ):
            body = question() if method == b"POST" else b""
            got = await ask(service.url, request(method, target, body, *headers, key=None))
            assert got.status in (401, 404)
            assert WORD not in got.body.decode()
            assert vendor.asked == []

    run(main())


def test_each_login_finds_its_own_vendor_on_paths_that_nobody_knows(tmp_path: Path) -> None:
    claude = (b"Authorization", b"Bearer " + BEARER.encode())
    codex = (b"Authorization", b"Bearer " + OPENAI_LOGIN.encode())

    async def main() -> None:
        async with (
            provider(http(200, b"{}", JSON)) as (openai, openai_url),
            provider(http(200, b"{}", JSON)) as (vendor, vendor_url),
        ):
            first = theirs(openai_url, "openai", "openai-responses")
            second = theirs(vendor_url)
            for number, ladder in enumerate(((first, second), (second, first))):
                async with gateway(tmp_path / str(number), *ladder) as service:
                    for path in (b"/api/oauth/profile", b"/v1/files", b"/v1/models"):
                        for login in (claude, codex):
                            raw = request(b"GET", path, b"", login, key=None)
                            assert (await ask(service.url, raw)).status == 200
            assert len(vendor.asked) == len(openai.asked) == 6
            assert all(BEARER.encode() in asked.raw for asked in vendor.asked)
            assert all(OPENAI_LOGIN.encode() in asked.raw for asked in openai.asked)

    run(main())


@pytest.mark.parametrize(
    "location",
    [
        b"https://elsewhere.example/v1/files",
        b"//elsewhere.example/v1/files",
        b"/\\elsewhere.example",
        b"\\\\elsewhere.example",
        b"http:elsewhere",
        b"",
    ],
)
def test_an_upstream_that_must_not_see_a_login_cannot_have_the_client_send_it_elsewhere(
    tmp_path: Path, location: bytes
) -> None:
    """SDKs follow redirects by themselves, and take their keys along."""

    async def main() -> None:
        moved = http(307, b"", (b"LOCATION", location))
        async with provider(moved) as (_, url), gateway(tmp_path, ours(url)) as service:
            for method, target in (
                (b"POST", b"/v1/messages"),
                (b"POST", b"/v1/messages/count_tokens"),
                (b"GET", b"/v1/models"),
            ):
                body = question() if method == b"POST" else b""
                got = await ask(service.url, request(method, target, body))
                assert got.status == 502, target
                assert got.header(b"location") is None

    run(main())


def test_a_redirect_that_comes_from_the_logins_own_vendor_is_passed_on(tmp_path: Path) -> None:
    async def main() -> None:
        location = b"https://files.example/2"
        moved = http(302, b"", (b"Location", location))
        async with provider(moved) as (_, url), gateway(tmp_path, theirs(url)) as service:
            got = await ask(service.url, request(b"GET", b"/v1/files/1"))
            assert (got.status, got.header(b"location")) == (302, location)

    run(main())


@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/v1/responses"])
def test_clients_of_other_dialects_are_not_served_with_our_key_when_rejected(
    tmp_path: Path, path: bytes
) -> None:
    kind = "openai-chat" if path.endswith(b"completions") else "openai-responses"

    async def main() -> None:
        async with (
            provider(refusal(401, "Incorrect API key provided")) as (vendor, vendor_url),
            provider(answered()) as (mine, mine_url),
            gateway(
                tmp_path, theirs(vendor_url, "openai", kind), ours(mine_url, kind=kind)
            ) as service,
        ):
            for key in (None, OPENAI_KEY.encode()):
                login = () if key is None else ((b"Authorization", b"Bearer " + key),)
                body = json.dumps({"model": "gpt-5.5", "messages": [], "input": "x"}).encode()
                got = await ask(service.url, request(b"POST", path, body, *login, key=None))
                assert got.status == 401
            assert len(vendor.asked) == 2
            assert mine.asked == []

    run(main())


def test_a_refused_login_is_told_what_to_do_in_words_without_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with provider(answered()) as (_, url), gateway(tmp_path, theirs(url)) as service:
            got: Got = await ask(service.url, call(OPENAI_KEY))
            assert got.status == 401
            words = got.json["error"]["message"]
            assert "openai" in words.lower()
            assert "anthropic" in words
            assert "credential" in words
            assert WORD not in words

    run(main())


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_carries_no_credential_anywhere(tmp_path: Path, status: int) -> None:
    async def main() -> None:
        async with provider(answered()) as (elsewhere, elsewhere_url):
            moved = http(status, b"", (b"Location", f"{elsewhere_url}/v1/messages".encode()))
            async with (
                provider(moved) as (vendor, vendor_url),
                gateway(tmp_path, theirs(vendor_url)) as service,
            ):
                for method, target in (
                    (b"POST", b"/v1/messages"),
                    (b"POST", b"/v1/messages/count_tokens"),
                    (b"GET", b"/v1/files"),
                ):
                    body = question() if method == b"POST" else b""
                    await ask(service.url, request(method, target, body))
                assert len(vendor.asked) >= 3
                assert elsewhere.asked == []

    run(main())


# --- other ways to carry a credential past the judgement -----------------------------------------


@pytest.mark.parametrize("name", [b"x-api-key", b"Authorization", b"api-key"])
@pytest.mark.parametrize("target", [b"/v1/messages", b"/v1/chat/completions", b"/v1/files"])
def test_a_credential_that_connection_names_is_not_sent_to_another_vendor(
    tmp_path: Path, name: bytes, target: bytes
) -> None:
    async def main() -> None:
        async with provider(answered()) as (openai, url):
            chat = replace(theirs(url, "chat", "openai-chat"), models={"claude-*": "gpt-5.5"})
            async with gateway(tmp_path, chat) as service:
                for named in (name, name.upper(), b"close, " + name, b"keep-alive,\t" + name):
                    headers = ((name, b"Bearer " + KEY.encode()), (b"Connection", named))
                    raw = request(b"POST", target, question(), *headers, key=None)
                    assert (await ask(service.url, raw)).status == 400
                assert openai.asked == []

    run(main())


def test_what_an_upstream_writes_in_our_name_is_not_passed_on(tmp_path: Path) -> None:
    forged = ((b"X-Jackline-Lane", b"forged"), (b"x-jackline-call", b"forged"))

    async def main() -> None:
        for number, status in enumerate((200, 400)):
            async with (
                provider(http(status, answered().partition(b"\r\n\r\n")[2], JSON, *forged)) as (
                    _,
                    url,
                ),
                gateway(tmp_path / str(number), theirs(url)) as service,
            ):
                for raw in (call(), request(b"GET", b"/v1/files")):
                    got = await ask(service.url, raw)
                    assert all(value != b"forged" for _, value in got.headers)

    run(main())
