"""Laws of fetching: only what was allowed, never by a detour, always bounded."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from jackline import event_loop
from jackline.batches.batch import run_batch
from jackline.batches.fetch import FetchTool, page_text
from jackline.batches.policy import Allowed, Denied, Policy
from jackline.batches.tool import BatchCall, CallResult, ToolContext

PAGE = (
    b"<!doctype html><title>T</title><style>p{}</style><p>Hello <b>you</b><script>x()</script></p>"
)


class Site(BaseHTTPRequestHandler):
    """A small site with a way out."""

    asked: list[str]
    server: ThreadingHTTPServer

    def do_GET(self) -> None:
        self.asked.append(self.path)
        redirects = {
            "/away": f"http://localhost:{self.server.server_port}/page",
            "/file": "file:///etc/passwd",
            "/round": "/page",
            "/loop": "/loop",
        }
        bodies = {"/page": PAGE, "/big": b"x" * 6_000_000, "/bin": b"\0\1"}
        target = redirects.get(self.path)
        body = bodies.get(self.path, b"none")
        self.send_response(302 if target else 200 if self.path in bodies else 404)
        if target:
            self.send_header("Location", target)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the library's word
        """Say nothing."""


@pytest.fixture
def site() -> Iterator[str]:
    Site.asked = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def fetch(url: str, *allow: str) -> CallResult:
    call = BatchCall("0", FetchTool(allow), {"url": url})
    return event_loop.run(run_batch([call], context=ToolContext(Path())))["0"]


def test_nothing_is_fetched_unless_it_was_allowed(site: str) -> None:
    assert "is not allowed; allowed: nothing" in (fetch(f"{site}/page").error or "")
    assert not fetch(f"{site}/page", f"{site}/other*").ok
    assert not fetch(f"{site}/page", "https://*").ok
    assert Site.asked == []


def test_a_page_comes_as_its_words(site: str) -> None:
    assert fetch(f"{site}/page", f"{site}/*").text == "T\nHello you"
    assert fetch(f"{site}/round", f"{site}/*").text == "T\nHello you"
    assert fetch(f"{site}/bin", f"{site}/*").text.endswith("2 bytes, not shown)")


def test_a_redirect_leads_nowhere_else(site: str) -> None:
    for path in ("/away", "/file"):
        result = fetch(f"{site}{path}", f"{site}/*")
        assert not result.ok
        assert result.text in ("", "none")
    assert Site.asked == ["/away", "/file"]
    assert fetch(f"{site}/loop", f"{site}/*").ended_by == "HTTP 302"


def test_a_redirect_is_judged_like_the_first_address(site: str) -> None:
    assert fetch(f"{site}/round", f"{site}/round").ended_by == "not allowed"
    assert Site.asked == ["/round"]


def test_this_machine_is_reached_only_when_allowed_by_name(site: str) -> None:
    result = fetch(f"{site}/page", "http://*/*")
    assert "on this machine or its network" in (result.error or "")
    assert Site.asked == []


def test_a_proxy_is_no_way_to_this_machine(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", site)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    for place in ("127.0.0.1:9", "localhost:9", "169.254.169.254", "2130706433", "[::1]:9"):
        result = fetch(f"http://{place}/page", "http://*/*")
        assert result.ended_by == "not allowed", place
    assert Site.asked == []
    # What is allowed by name on this machine is reached without the proxy.
    assert fetch("http://127.0.0.1:9/page", "http://127.0.0.1:9/*").ended_by == "no answer"
    assert Site.asked == []


@pytest.mark.parametrize("host", ["0", "127.1", "2130706433", "[::ffff:127.0.0.1]", "localhost"])
def test_no_spelling_of_an_address_hides_that_it_is_this_machine(host: str, site: str) -> None:
    port = site.rpartition(":")[2]
    assert fetch(f"http://{host}:{port}/page", "http://*/*").ended_by == "not allowed"
    assert Site.asked == []


def finding(address: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    """A resolver that knows one name more."""

    def find(host: str, port: int, *more: Any, **named: Any) -> Any:
        if host == "name.example":
            return [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", (address, port))]
        return plain(host, port, *more, **named)

    return find


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("::ffff:10.0.0.1", False),
        ("::10.0.0.1", False),
        ("64:ff9b::127.0.0.1", False),
        ("64:ff9b::169.254.169.254", False),
        ("64:ff9b:1::8.8.8.8", False),
        ("2002:7f00:1::", False),
        ("2002:808:808::1", False),
        ("2001:0:808:808::f5ff:fffe", False),
        ("2606:4700::5efe:10.0.0.1", False),
        ("2606:4700::200:5efe:10.0.0.1", False),
        ("fec0::1", False),
        ("fd00::1", False),
        ("fe80::1%lo", False),
        ("ff0e::1", False),
        ("5f00::1", False),
        ("::", False),
        ("100.64.0.1", False),
        ("224.0.1.1", False),
        ("8.8.8.8", True),
        ("::ffff:8.8.8.8", True),
        ("64:ff9b::8.8.8.8", True),
        ("2606:4700:4700::1111", True),
    ],
)
def test_no_address_inside_another_leads_into_this_network(
    address: str, public: bool, site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a proxy, which is where an address can be judged without reaching it."""
    monkeypatch.setenv("http_proxy", site)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(socket, "getaddrinfo", finding(address, socket.getaddrinfo))
    result = fetch("http://name.example/page", "http://*/*")
    assert result.ended_by == ("HTTP 404" if public else "not allowed")


def test_an_error_page_is_a_failure_that_keeps_its_text(site: str) -> None:
    result = fetch(f"{site}/nothing", f"{site}/*")
    assert (result.ended_by, result.text) == ("HTTP 404", "none")


def test_a_large_page_is_cut(site: str) -> None:
    assert "characters left out" in fetch(f"{site}/big", f"{site}/*").text


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://x/y", "http://me:pw@x/", "http://", "nothing", "//x/y"]
)
def test_strange_addresses_are_refused(url: str) -> None:
    assert fetch(url, "*://*/*", "*").ended_by == "bad address"


def test_a_path_cannot_pass_for_a_host() -> None:
    allow = "https://*.example.org/*"
    for url in ("https://evil.test/a.example.org/x", "https://evil.test?.example.org/"):
        assert fetch(url, allow).ended_by == "not allowed"


def test_any_page_has_a_text() -> None:
    assert page_text("<p>a<br>b</p><ul><li>c</ul>d &amp; e<svg><text>f") == "a\nb\nc\nd & e"
    assert page_text("<<<>& <!-- x --") != "no error"


@pytest.mark.parametrize(
    "path",
    [
        "/docs/../admin",
        "/docs/%2e%2e/admin",
        "/docs/%2E./admin",
        "/docs/%252e%252e/admin",
        "/docs/..%2fadmin",
        "/docs/./../admin",
        "/docs/..;x/admin",
        "/docs/..\\admin",
        "/docs/%5c..%5cadmin",
        "/docs/.\t./admin",
        "/docs/%c0%ae%c0%ae/admin",
        "/docs/..",
        "/docs/x/..?y",
    ],
)
def test_no_dots_lead_out_of_an_allowed_path(path: str, site: str) -> None:
    refused = fetch(f"{site}{path}", f"{site}/docs/*")
    assert "leads elsewhere" in (refused.error or "")
    policy = Policy(Path(), (f"fetch:{site}/docs/*",))
    call = BatchCall("1", FetchTool(), {"url": f"{site}{path}"})
    assert isinstance(policy.judge(call), Denied)
    assert Site.asked == []


@pytest.mark.parametrize("path", ["/docs/a..b", "/docs/...", "/docs/v1.2/%20x", "/docs/?q=../x"])
def test_other_dots_do_not(path: str, site: str) -> None:
    fetch(f"{site}{path}", f"{site}/docs/*")
    assert Site.asked == [path]
    policy = Policy(Path(), (f"fetch:{site}/docs/*",))
    assert policy.judge(BatchCall("1", FetchTool(), {"url": f"{site}{path}"})) == Allowed()
