"""A gateway with a token of its own shows its page to those who may see it, and to nobody else."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, expect

from jackline.cli.open import Opened, open_secret
from jackline.testing.simulated_provider import SimulatedProvider
from tests.dashboard.browser import SHOWN_WITHIN, opened
from tests.dashboard.service_thread import ServiceThread

TOKEN = "a-token-of-the-gateway"  # noqa: S105 -- planted
READS = ("/_jackline/status", "/_jackline/feed", "/_jackline/fleet", "/_jackline/run?id=x", "/")


def ask(
    url: str, path: str, method: str = "GET", **headers: str
) -> tuple[int, http.client.HTTPMessage]:
    """The status and the head; streams are left at once."""
    place = urlsplit(url)
    line = http.client.HTTPConnection(place.hostname or "", place.port, timeout=120)
    try:
        line.request(method, path, headers={n.replace("_", "-"): v for n, v in headers.items()})
        answer = line.getresponse()
        return answer.status, answer.headers
    finally:
        line.close()


def test_without_the_token_there_is_the_empty_page_and_nothing_else(tmp_path: Path) -> None:
    with ServiceThread(tmp_path, token=TOKEN) as service:
        for path in READS:
            assert ask(service.url, path)[0] == 401, path
        assert ask(service.url, "/_jackline/view", "POST")[0] == 401
        assert ask(service.url, "/", accept="text/html")[0] == 200
        assert ask(service.url, "/_jackline/page/app.js")[0] == 200
        assert ask(service.url, "/_jackline/page/../status")[0] == 404
        assert ask(service.url, "/_jackline/view", "POST", x_jackline_token=TOKEN[1:])[0] == 401


def test_the_cookie_lets_look_and_orders_nothing(tmp_path: Path) -> None:
    with ServiceThread(tmp_path, token=TOKEN) as service:
        status, head = ask(service.url, "/_jackline/view", "POST", x_jackline_control=service.token)
        cookie = head["set-cookie"]
        assert status == 200
        assert {"HttpOnly", "SameSite=Strict", "Path=/_jackline/"} <= set(cookie.split("; "))
        given = cookie.partition(";")[0]
        # It is none of the tokens, and names its port: one jar holds those of all ports.
        assert service.token not in given
        assert TOKEN not in given
        assert given.startswith(f"jackline-{urlsplit(service.url).port}=")
        assert ask(service.url, "/_jackline/status", cookie=f"other=1; {given}")[0] == 200
        assert ask(service.url, "/_jackline/status", cookie=f"{given}0")[0] == 401
        for order in ("pause", "stop", "run/cancel"):
            assert ask(service.url, f"/_jackline/{order}", "POST", cookie=given)[0] == 401
        assert ask(service.url, "/v1/messages", "POST", cookie=given)[0] == 401


@pytest.mark.parametrize("header", [{}, {"x_jackline_token": "anything"}])
def test_without_a_token_of_its_own_a_gateway_hands_out_no_cookie(
    tmp_path: Path, header: dict[str, str]
) -> None:
    with ServiceThread(tmp_path) as service:
        status, head = ask(service.url, "/_jackline/view", "POST", **header)
        assert (status, head["set-cookie"]) == (200, None)


def test_a_cookie_ends_with_the_token_that_it_was_given_for(tmp_path: Path) -> None:
    """Whoever was let in by an earlier token, or before there was one, is not let in by a later."""
    with ServiceThread(tmp_path, token=TOKEN) as service:
        _, head = ask(service.url, "/_jackline/view", "POST", x_jackline_token=TOKEN)
        cookie = head["set-cookie"].partition(";")[0]
        assert ask(service.url, "/_jackline/status", cookie=cookie)[0] == 200
        service.change_token("another-token-of-the-gateway")
        assert ask(service.url, "/_jackline/status", cookie=cookie)[0] == 401


@contextmanager
def handed_over(address: str) -> Iterator[str]:
    """The address that `jackline open` would start a browser with."""
    begin: Queue[str] = Queue()

    def opener(url: str) -> bool:
        begin.put(url)
        return True

    with ThreadPoolExecutor(1) as pool:
        came = pool.submit(asyncio.run, open_secret(address, opener, SHOWN_WITHIN / 1000))
        yield begin.get()
        assert came.result() is Opened.SHOWN


@pytest.mark.parametrize("read_only", [False, True])
def test_what_jackline_open_opens_is_shown_and_lives(
    browser: Browser, tmp_path: Path, read_only: bool
) -> None:
    with (
        SimulatedProvider() as provider,
        ServiceThread(tmp_path, provider.url, token=TOKEN, read_only=read_only) as service,
        handed_over(f"{service.url}/#token={service.token}") as address,
        opened(browser, address) as page,
    ):
        assert service.token not in address
        assert page.url == f"{service.url}/#/"
        expect(page.locator("#verdict")).to_contain_text("Nothing is under way")
        assert service.token not in page.content()
        assert page.evaluate("document.cookie") == ""
        # The pages behind links are asked for with the cookie, too.
        page.goto(f"{service.url}/#/agent/nobody/none")
        expect(page.locator(".detail")).to_contain_text("0 calls in the last day")


def test_who_has_the_gateways_own_token_may_write_it_into_the_page(
    browser: Browser, tmp_path: Path
) -> None:
    with (
        ServiceThread(tmp_path, token=TOKEN) as service,
        opened(browser, service.url, errors_expected=True, live=False) as page,
    ):
        expect(page.locator("#top")).to_contain_text("jackline open")
        page.get_by_label("token").fill("wrong")
        page.get_by_label("token").press("Enter")
        expect(page.get_by_label("token")).to_be_visible()
        page.get_by_label("token").fill(TOKEN)
        page.get_by_label("token").press("Enter")
        page.locator(".live.go").wait_for()
        expect(page.get_by_label("token")).to_have_count(0)
        expect(page.locator("#top")).to_contain_text("Read-only: open this page")
