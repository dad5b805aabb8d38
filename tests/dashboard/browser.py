"""A real Chromium for the page: the machine's own, or the one that Debian's packages bring.

Rules: (1) what cannot be had fails loudly, it is never skipped; (2) every error on the page's
console fails the test that opened it, unless the test says that it expects them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Literal

from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from tests.debian_packages import installed_program

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "msedge")
# No look-ups of its maker's hosts, and no sandbox where tests run as root.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# Keeps what the page measures of its frames, of which it keeps but the last itself.
FRAMES = """
window.frames_seen = [];
new PerformanceObserver((list) => {
	for (const { duration, detail } of list.getEntriesByName("fleet-frame"))
		frames_seen.push({ took: duration, ...detail });
}).observe({ type: "measure" });
"""
# Only a test that fails ever waits so long for the page; in milliseconds, as Playwright counts.
SHOWN_WITHIN = 90_000
expect.set_options(timeout=SHOWN_WITHIN)
Scheme = Literal["dark", "light"]


@cache
def chromium_path() -> str:
    """Where Chromium is; installed on first use where that can be done."""
    return installed_program("chromium", *NAMES)


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium_path(), args=list(FLAGS), timeout=2 * SHOWN_WITHIN
        )
        try:
            yield browser
        finally:
            browser.close()


def _zone() -> str:
    """That of whoever runs the tests is no matter, but one that a test has chosen is the page's."""
    chosen = os.environ.get("TZ", "")
    return chosen if chosen.startswith("Etc/GMT") else "UTC"


@contextmanager
def opened(
    browser: Browser,
    address: str,
    *,
    scheme: Scheme = "dark",
    width: int = 1440,
    height: int = 1000,
    errors_expected: bool = False,
    live: bool = True,
    zone: str = "",
) -> Iterator[Page]:
    """The page at this address, once its stream has sent everything."""
    said: list[str] = []

    def received(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            said.append(f"{message.type}: {message.text}")

    context = browser.new_context(
        color_scheme=scheme,
        viewport={"width": width, "height": height},
        reduced_motion="reduce",
        timezone_id=zone or _zone(),
    )
    try:
        context.add_init_script(FRAMES)
        page = context.new_page()
        page.set_default_timeout(SHOWN_WITHIN)
        page.on("console", received)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(address)
        if live:
            page.locator(".live.go").wait_for()
        yield page
        assert errors_expected or not said, said
    finally:
        context.close()
