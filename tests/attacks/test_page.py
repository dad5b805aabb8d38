"""A web page in the user's browser: it can make the browser send requests to this machine.

Rules: (1) whatever a page makes a browser send, the upstream gets no request, and so no key of the
user's is spent and no answer can be read; (2) the gateway is a real one on a real port, and the
page runs in a real Chromium where the browser decides what is sent.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from jackline.assembly import Service
from jackline.gateway.settings import ListenSettings
from jackline.providers.settings import Credential, UpstreamSettings
from jackline.testing import SimulatedProvider
from tests.assembly.world import (
    Got,
    Pair,
    Provider,
    answered,
    ask,
    config_for,
    http,
    port_of,
    provider,
    question,
    read_answer,
    request,
    run,
)
from tests.dashboard.browser import chromium, opened
from tests.dashboard.service_thread import ServiceThread

ANOTHER_ORIGIN = (b"Origin", b"http://localhost:3000")
EVERY_PATH = (
    (b"POST", b"/v1/messages"),
    (b"POST", b"/t/night/v1/messages"),
    (b"POST", b"/v1/messages/count_tokens"),
    (b"POST", b"/v1/chat/completions"),
    (b"POST", b"/v1/responses"),
    (b"GET", b"/v1/models"),
    (b"GET", b"/t/night/v1/models"),
    (b"HEAD", b"/v1/models"),
    (b"GET", b"/v1/files"),
    (b"POST", b"/v1/files"),
    (b"DELETE", b"/v1/files/1"),
    (b"POST", b"/"),
    (b"GET", b"/"),
    (b"GET", b"/metrics"),
    (b"GET", b"/_jackline/status"),
    (b"GET", b"/_jackline/feed"),
    (b"GET", b"/_jackline/fleet"),
    (b"POST", b"/_jackline/stop"),
    (b"POST", b"/mcp"),
)
STREAM = b"".join(
    b"event: %b\ndata: %b\n\n" % (json.loads(data)["type"].encode(), data)
    for data in (
        (
            b'{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant",'
            b'"model":"claude-opus-4-8","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}'
        ),
        b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
        b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}',
        b'{"type":"content_block_stop","index":0}',
        b'{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}',
        b'{"type":"message_stop"}',
    )
)
STRANGE_HOSTS = (
    b"evil.example",
    b"evil.example:8766",
    b"EVIL.EXAMPLE",
    b"127.0.0.1.evil.example",
    b"localhost.",
    b"localhost.evil.example",
    b"evil.example@127.0.0.1",
    b"127.0.0.1:8766@evil.example",
    b"[fe80::1%25eth0]",
    b"[::1%lo]",
    b"0.0.0.0",
    b"192.168.0.7",
    b"host.docker.internal",
)


def own_key(url: str, name: str = "mine") -> UpstreamSettings:
    """An upstream that is called with the user's own key, whoever asks."""
    return UpstreamSettings(name=name, url=url, credential=Credential.API_KEY, secret="users-key")  # noqa: S106 -- no secret


@asynccontextmanager
async def with_own_key(
    folder: Path, url: str, *, names: tuple[str, ...] = (), token: str | None = None
) -> AsyncIterator[Service]:
    config = config_for(folder, url)
    listen = ListenSettings(port=0, names=names, token=token)
    gateway = replace(config.gateway, upstreams=(own_key(url),), listen=listen)
    async with Service(replace(config, gateway=gateway)) as service:
        yield service


@asynccontextmanager
async def gateway_and_upstream(
    folder: Path, *, names: tuple[str, ...] = (), token: str | None = None
) -> AsyncIterator[tuple[Provider, Service]]:
    async with (
        provider(answered()) as (upstream, url),
        with_own_key(folder, url, names=names, token=token) as service,
    ):
        yield upstream, service


def sent(
    method: bytes,
    target: bytes,
    *headers: Pair,
    host: bytes = b"127.0.0.1",
    key: bytes | None = None,
) -> bytes:
    body = question() if method == b"POST" else b""
    return request(method, target, body, *headers, host=host, key=key)


@pytest.mark.parametrize(
    "headers",
    [
        (ANOTHER_ORIGIN,),
        ((b"Origin", b"null"),),
        ((b"Origin", b"https://evil.example"), (b"Content-Type", b"text/plain")),
        ((b"Sec-Fetch-Site", b"cross-site"), (b"Sec-Fetch-Mode", b"no-cors")),
        ((b"Sec-Fetch-Site", b"same-site"),),
        (
            (b"Content-Type", b"application/x-www-form-urlencoded"),
            (b"Origin", b"http://evil.example"),
        ),
        (
            (b"Connection", b"Upgrade"),
            (b"Upgrade", b"websocket"),
            (b"Sec-WebSocket-Version", b"13"),
            (b"Sec-WebSocket-Key", b"dGhlIHNhbXBsZSBub25jZQ=="),
            (b"Origin", b"http://evil.example"),
        ),
    ],
    ids=["port", "null", "simple-post", "cross-site", "same-site", "form", "websocket"],
)
def test_a_page_of_another_origin_gets_nothing_on_any_path(
    tmp_path: Path, headers: tuple[Pair, ...]
) -> None:
    async def main() -> None:
        async with gateway_and_upstream(tmp_path) as (upstream, service):
            for method, target in EVERY_PATH:
                got = await ask(service.url, sent(method, target, *headers))
                assert got.status == 403, (method, target)
                assert_closed_to_pages(got)
            assert upstream.asked == []

    run(main())


@pytest.mark.parametrize("host", STRANGE_HOSTS)
def test_a_name_that_was_bound_anew_to_this_machine_gets_nothing_on_any_path(
    tmp_path: Path, host: bytes
) -> None:
    async def main() -> None:
        async with gateway_and_upstream(tmp_path) as (upstream, service):
            for method, target in EVERY_PATH:
                same_origin = (b"Origin", b"http://" + host)
                got = await ask(service.url, sent(method, target, same_origin, host=host))
                assert got.status in (400, 403), (method, target)
                assert_closed_to_pages(got)
            assert upstream.asked == []

    run(main())


@pytest.mark.parametrize(
    "raw",
    [
        b"GET http://evil.example/v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET http://127.0.0.1/v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"GET /v1/models HTTP/1.0\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: evil.example\r\nhost: 127.0.0.1\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost : 127.0.0.1\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: evil.example,\r\n 127.0.0.1\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: 127.0.0.1\r\n\r\n",
        (
            b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\n"
            b"oRIGIN: http://evil.example\r\n\r\n"
        ),
        b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin:\thttp://evil.example\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin :http://evil.example\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nX: 1\r\n Origin: x\r\n\r\n",
        b"TRACE /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n",
    ],
)
def test_heads_that_two_readers_could_read_apart_reach_nobody(tmp_path: Path, raw: bytes) -> None:
    async def main() -> None:
        async with gateway_and_upstream(tmp_path) as (upstream, service):
            got = await ask(service.url, raw)
            assert 400 <= got.status < 600
            assert_closed_to_pages(got)
            assert upstream.asked == []

    run(main())


@pytest.mark.parametrize(("method", "target"), EVERY_PATH)
def test_no_preflight_is_answered_or_passed_on(
    tmp_path: Path, method: bytes, target: bytes
) -> None:
    async def main() -> None:
        async with gateway_and_upstream(tmp_path) as (upstream, service):
            asks = (b"Access-Control-Request-Method", method)
            for headers in ((asks, ANOTHER_ORIGIN), (asks,), ()):
                got = await ask(service.url, sent(b"OPTIONS", target, *headers))
                assert got.status in (403, 405)
                assert_closed_to_pages(got)
            assert upstream.asked == []

    run(main())


def test_what_an_upstream_says_to_browsers_does_not_reach_the_client(tmp_path: Path) -> None:
    for_browsers: list[Pair] = [
        (b"Access-Control-Allow-Origin", b"*"),
        (b"access-control-allow-credentials", b"true"),
        (b"ACCESS-CONTROL-EXPOSE-HEADERS", b"*"),
        (b"Access-Control-Allow-Private-Network", b"true"),
        (b"Timing-Allow-Origin", b"*"),
        (b"Set-Cookie", b"__cf_bm=1; Path=/"),
        (b"Alt-Svc", b'h3=":443"'),
        (b"Strict-Transport-Security", b"max-age=31536000; includeSubDomains"),
        (b"Clear-Site-Data", b'"*"'),
        (b"Service-Worker-Allowed", b"/"),
        (b"Refresh", b"0; url=http://evil.example"),
        (b"Report-To", b"{}"),
        (b"NEL", b"{}"),
        (b"Link", b"</_jackline/page/app.js>; rel=preload"),
        (b"WWW-Authenticate", b'Basic realm="Jackline"'),
        (b"Speculation-Rules", b'"/rules.json"'),
        (b"Supports-Loading-Mode", b"credentialed-prerender"),
        (b"Accept-CH", b"Sec-CH-UA-Model"),
        (b"Critical-CH", b"Sec-CH-UA-Model"),
        (b"Origin-Agent-Cluster", b"?0"),
        (b"Origin-Trial", b"x"),
        (b"Use-As-Dictionary", b'match="/*"'),
        (b"Set-Login", b"logged-in"),
        (b"SourceMap", b"http://evil.example/map"),
        (b"X-SourceMap", b"http://evil.example/map"),
        (b"Large-Allocation", b"500"),
    ]
    answers = [
        http(200, b'{"data":[]}', (b"Content-Type", b"application/json"), *for_browsers),
        http(400, b'{"type":"error"}', (b"Content-Type", b"application/json"), *for_browsers),
    ]

    async def main() -> None:
        for answer in answers:
            async with provider(answer) as (upstream, url), with_own_key(tmp_path, url) as service:
                for method, target in EVERY_PATH[:11]:
                    got = await ask(service.url, sent(method, target))
                    assert_closed_to_pages(got)
                    names = {name.lower() for name, _ in got.headers}
                    assert not names & {name.lower() for name, _ in for_browsers}
                assert upstream.asked
        events = http(200, STREAM, (b"Content-Type", b"text/event-stream"), *for_browsers)
        async with provider(events) as (upstream, url), with_own_key(tmp_path, url) as service:
            raw = request(b"POST", b"/v1/messages", question(stream=True), key=None)
            got = await ask(service.url, raw)
            assert (got.status, got.body) == (200, STREAM)
            assert not {n.lower() for n, _ in got.headers} & {n.lower() for n, _ in for_browsers}

    run(main())


def test_a_head_that_came_again_is_judged_as_its_own_and_not_as_the_one_before(
    tmp_path: Path,
) -> None:
    """Heads that differ in their length alone are read once: nothing else may differ."""

    async def main() -> None:
        async with gateway_and_upstream(tmp_path) as (upstream, service):
            port = port_of(service.url)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            good = sent(b"POST", b"/v1/messages")
            for raw, status in (
                (good, 200),
                (good.replace(b"Host: 127.0.0.1", b"Host: evil.example"), 403),
                (good, 200),
                (good.replace(b"\r\nContent", b"\r\nOrigin: http://evil.example\r\nContent"), 403),
                (good.replace(b"\r\n\r\n", b"\r\nOrigin: null\r\n\r\n", 1), 403),
                (good, 200),
            ):
                writer.write(raw)
                assert (await asyncio.wait_for(read_answer(reader), 60.0)).status == status
            writer.close()
            await writer.wait_closed()
            assert len(upstream.asked) == 3

    run(main())


def test_a_page_cannot_smuggle_a_second_request_behind_its_own(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway_and_upstream(tmp_path) as (upstream, service):
            hidden = sent(b"POST", b"/v1/messages")
            raw = request(b"POST", b"/v1/messages", hidden, ANOTHER_ORIGIN, key=None)
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(service.url))
            writer.write(raw)
            assert (await asyncio.wait_for(read_answer(reader), 60.0)).status == 403
            writer.write_eof()
            assert await asyncio.wait_for(reader.read(), 60.0) == b""
            writer.close()
            await writer.wait_closed()
            assert upstream.asked == []

    run(main())


def test_an_image_in_a_page_that_an_old_browser_shows_reaches_no_upstream(tmp_path: Path) -> None:
    """It sends neither Origin nor Sec-Fetch-Site, as no browser does to a plain name."""
    browsers = (b"User-Agent", b"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/605.1.15")

    async def main() -> None:
        async with gateway_and_upstream(tmp_path, names=("host.docker.internal",)) as (
            upstream,
            service,
        ):
            for host in (b"host.docker.internal", b"127.0.0.1"):
                for target in (b"/v1/models", b"/v1/files", b"/t/x/v1/models"):
                    got = await ask(service.url, sent(b"GET", target, browsers, host=host))
                    assert got.status == 403
            assert upstream.asked == []

    run(main())


def test_a_site_that_the_user_opened_cannot_send_the_whole_tab_to_an_upstream(
    tmp_path: Path,
) -> None:
    """After a redirect of an address that the user typed, a browser still says `none`."""
    tab = (
        (b"Sec-Fetch-Site", b"none"),
        (b"Sec-Fetch-Mode", b"navigate"),
        (b"Sec-Fetch-Dest", b"document"),
        (b"User-Agent", b"Mozilla/5.0 (X11; Linux x86_64)"),
        (b"Accept", b"text/html"),
    )

    async def main() -> None:
        async with gateway_and_upstream(tmp_path) as (upstream, service):
            for target in (b"/v1/models", b"/v1/files", b"/t/x/v1/models", b"/anything"):
                assert (await ask(service.url, sent(b"GET", target, *tab))).status == 403
            assert upstream.asked == []
            # The gateway's own pages are there to be opened.
            assert (await ask(service.url, sent(b"GET", b"/", *tab))).status == 200

    run(main())


# --- who is served as before ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "headers"),
    [
        (b"127.0.0.1", ()),
        (b"localhost", ()),
        (b"LOCALHOST:8766", ()),
        (b"[::1]:8766", ()),
        # As a tunnel or a container's published port shows it.
        (b"localhost:9000", ()),
        # Node's own fetch says this much of itself.
        (b"127.0.0.1", ((b"sec-fetch-mode", b"cors"), (b"User-Agent", b"node"))),
        (b"127.0.0.1:8766", ((b"Origin", b"http://127.0.0.1:8766"),)),
    ],
)
def test_clients_of_this_machine_are_served(
    tmp_path: Path, host: bytes, headers: tuple[Pair, ...]
) -> None:
    async def main() -> None:
        async with gateway_and_upstream(tmp_path) as (_, service):
            for method, target in ((b"POST", b"/v1/messages"), (b"GET", b"/v1/models")):
                assert (
                    await ask(service.url, sent(method, target, *headers, host=host))
                ).status == 200

    run(main())


def test_who_needs_another_name_is_told_the_line_to_write_and_it_works(tmp_path: Path) -> None:
    host = b"host.docker.internal:8766"

    async def main() -> None:
        async with gateway_and_upstream(tmp_path / "1") as (upstream, service):
            got = await ask(service.url, sent(b"POST", b"/v1/messages", host=host))
            assert got.status == 403
            assert got.json["type"] == "error"
            assert got.json["error"]["type"] == "permission_error"
            words = got.json["error"]["message"]
            assert 'names = ["host.docker.internal"]' in words
            assert "[listen]" in words
            assert "JACKLINE_LISTEN_NAMES" in words
            assert upstream.asked == []
        async with gateway_and_upstream(tmp_path / "2", names=("Host.Docker.Internal",)) as (
            upstream,
            service,
        ):
            good = await ask(service.url, sent(b"POST", b"/v1/messages", host=host))
            assert good.status == 200
            strange = await ask(service.url, sent(b"POST", b"/v1/messages", host=b"other.internal"))
            assert strange.status == 403
            page = sent(b"POST", b"/v1/messages", ANOTHER_ORIGIN, host=host)
            assert (await ask(service.url, page)).status == 403
            assert len(upstream.asked) == 1

    run(main())


def test_a_token_does_not_replace_the_door(tmp_path: Path) -> None:
    token = (b"x-jackline-token", b"team-token")

    async def main() -> None:
        async with gateway_and_upstream(tmp_path, token="team-token") as (upstream, service):  # noqa: S106 -- no secret
            for headers in ((token, ANOTHER_ORIGIN), (ANOTHER_ORIGIN,)):
                got = await ask(service.url, sent(b"POST", b"/v1/messages", *headers))
                assert got.status == 403
            assert upstream.asked == []
            assert (await ask(service.url, sent(b"POST", b"/v1/messages", token))).status == 200

    run(main())


def test_the_pages_of_the_gateway_can_be_framed_by_nobody(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway_and_upstream(tmp_path) as (_, service):
            wants = (b"Accept", b"text/html")
            got = await ask(service.url, sent(b"GET", b"/", wants))
            policy = got.header(b"content-security-policy") or b""
            assert b"frame-ancestors 'none'" in policy
            assert got.header(b"x-content-type-options") == b"nosniff"
            assert got.header(b"referrer-policy") == b"no-referrer"

    run(main())


def assert_closed_to_pages(got: Got) -> None:
    assert not [n for n, _ in got.headers if n.lower().startswith(b"access-control-")]


# --- in a real browser ------------------------------------------------------------------------

TRIES = """
async (target) => {
  const said = [];
  const body = JSON.stringify({model: "claude-opus-4-8", max_tokens: 9,
    messages: [{role: "user", content: "spend it"}]});
  const tell = (name) => (found) => said.push([name, found]);
  const tried = (name, promise) => promise.then(
    async (r) => tell(name)([r.type, r.status, await r.text()]), () => tell(name)("refused"));
  for (const path of ["/v1/messages", "/t/x/v1/messages", "/v1/files"]) {
    const to = target + path;
    await tried("no-cors", fetch(to, {method: "POST", mode: "no-cors", body}));
    await tried("cors", fetch(to, {method: "POST", body,
      headers: {"content-type": "application/json", "x-api-key": "x"}}));
    await tried("simple", fetch(to, {method: "POST", body}));
    await tried("beacon", new Promise((ok) => { navigator.sendBeacon(to, body);
      ok({type: "beacon", status: 0, text: async () => ""}); }));
  }
  await tried("read", fetch(target + "/v1/models"));
  await tried("status", fetch(target + "/_jackline/status"));
  const loads = (make) => new Promise((done) => {
    const made = make(); made.onload = () => done("loaded"); made.onerror = () => done("failed");
    document.body.append(made); });
  tell("img")(await loads(() => Object.assign(new Image(), {src: target + "/v1/models"})));
  for (const path of ["/v1/models", "/metrics", "/_jackline/status"])
    tell("script")(await loads(
      () => Object.assign(document.createElement("script"), {src: target + path})));
  const frame = Object.assign(document.createElement("iframe"), {name: "sink"});
  document.body.append(frame);
  const form = Object.assign(document.createElement("form"),
    {method: "POST", action: target + "/v1/messages", target: "sink", enctype: "text/plain"});
  form.append(Object.assign(document.createElement("input"), {name: body, value: "x"}));
  document.body.append(form);
  const landed = new Promise((done) => { frame.onload = done; });
  form.submit();
  await landed;
  tell("form")("sent");
  const heard = (source) => new Promise((done) => {
    source.onopen = () => done("open");
    source.onerror = () => { source.close(); done("failed"); }});
  tell("events")(await heard(new EventSource(target + "/_jackline/feed")));
  tell("socket")(await heard(new WebSocket(target.replace("http", "ws") + "/v1/realtime")));
  return said;
}
"""


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<!doctype html><title>a page</title><body></body>"
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the base's name
        """Nothing is logged."""


@contextmanager
def page_elsewhere() -> Iterator[str]:
    """A page that another port of this machine serves, as any site or a project's server would."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://localhost:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_page_in_chromium_spends_no_key_and_reads_no_answer(tmp_path: Path) -> None:
    with (
        SimulatedProvider() as simulated,
        ServiceThread(tmp_path, simulated.url) as service,
        page_elsewhere() as page_url,
        chromium() as browser,
    ):
        url = service.url
        for target in (url, url.replace("127.0.0.1", "localhost")):
            with opened(browser, page_url, errors_expected=True, live=False) as page:
                said = page.evaluate(TRIES, target)
                told = json.dumps(said)
                names = {name for name, _ in said}
                assert names == {
                    *("no-cors", "cors", "simple", "beacon", "read", "status", "img"),
                    *("script", "form", "events", "socket"),
                }
                assert '"loaded"' not in told
                assert '"open"' not in told
                readable = [
                    found
                    for name, found in said
                    if name in ("cors", "simple", "read", "status") and found != "refused"
                ]
                assert readable == []
        assert list(simulated.ledger) == []


@pytest.mark.parametrize(
    "headers",
    [
        ((b"Content-Type", b"text/plain"),),
        ((b"Content-Type", b"Text/Plain; charset=utf-8"),),
        ((b"Content-Type", b"application/x-www-form-urlencoded"),),
        ((b"Content-Type", b"multipart/form-data; boundary=x"),),
        (),
    ],
)
@pytest.mark.parametrize(
    "target",
    [
        b"/v1/messages",
        b"/t/tag/v1/messages",
        b"/v1/messages/count_tokens",
        b"/v1/chat/completions",
        b"/v1/responses",
    ],
)
def test_what_a_form_of_an_old_browser_sends_is_no_model_call(
    tmp_path: Path, headers: tuple[Pair, ...], target: bytes
) -> None:
    async def main() -> None:
        async with gateway_and_upstream(tmp_path) as (upstream, service):
            browser = (b"User-Agent", b"Mozilla/5.0 (Trident/7.0; rv:11.0) like Gecko")
            raw = request(b"POST", target, question(), browser, *headers, key=None)
            got = await ask(service.url, raw)
            assert got.status == 415
            assert "application/json" in got.json["error"]["message"]
            assert upstream.asked == []

    run(main())
