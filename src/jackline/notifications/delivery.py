"""Send messages about incidents by every configured channel: desktop, webhook, Apprise.

Rules: (1) `send` waits, and so runs in a thread; while no channel is set, nothing is looked at; (2)
a channel that fails hinders no other; it is logged and tried a few times; (3) an error is reported
without the address, which may hold a secret; (4) no text of a message is ever read as a command: it
is an argument, or in the environment; (5) a webhook's signature covers the exact bytes and the
time, so that an old message cannot be sent again; the secret appears nowhere.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import http.client
import json
import logging
import os
import subprocess
import sys
import urllib.error
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from jackline.clock import Clock, SystemClock
from jackline.control.board import Facts, FlowFacts
from jackline.control.stored_runs import StoredRuns
from jackline.flows.settings import parse_hours
from jackline.notifications.incidents import ConditionFinder, IncidentMessage, Incidents
from jackline.notifications.settings import NotifySettings
from jackline.programs import find_program
from jackline.upstream.single_post import post

_log = logging.getLogger(__name__)
SCHEMA = "jackline.notification/1"
HEADER = "x-jackline-signature"
_TIMEOUT = 10.0
_LOOK_EVERY = 5.0
_TRIES = 3
_BETWEEN_TRIES = 30.0
# The texts come in as variables, so that nothing in them is read as script.
_MAC = (
    'display notification (system attribute "JACKLINE_NOTE_TEXT")'
    ' with title (system attribute "JACKLINE_NOTE_TITLE")'
)
_WINDOWS = (
    "Add-Type -AssemblyName System.Windows.Forms;"
    "$n = New-Object System.Windows.Forms.NotifyIcon;"
    "$n.Icon = [System.Drawing.SystemIcons]::Information;$n.Visible = $true;"
    "$n.ShowBalloonTip(10000, $env:JACKLINE_NOTE_TITLE, $env:JACKLINE_NOTE_TEXT, 'Info');"
    "Start-Sleep -Seconds 10;$n.Dispose()"
)


def desktop_command(
    title: str,
    text: str,
    *,
    platform: str = sys.platform,
    which: Callable[[str], str | None] = find_program,
) -> tuple[list[str], dict[str, str]] | None:
    """This system's command and the variables that it needs; None where it has none."""
    variables = {"JACKLINE_NOTE_TITLE": title, "JACKLINE_NOTE_TEXT": text}
    if platform == "darwin":
        tool = which("osascript")
        arguments = ["-e", _MAC]
    elif platform == "win32":
        tool = which("powershell") or which("pwsh")
        arguments = ["-NoProfile", "-NonInteractive", "-Command", _WINDOWS]
    else:
        tool, variables = which("notify-send"), {}
        arguments = ["--app-name=Jackline", "--icon=dialog-information", "--", title, text]
    return None if tool is None else ([tool, *arguments], variables)


def webhook_body(message: IncidentMessage) -> bytes:
    """The JSON document that is sent; Slack and similar services show `text` alone."""
    return json.dumps(
        {
            "schema": SCHEMA,
            "about": message.about.value,
            "at": round(message.at, 3),
            "title": message.title,
            "text": f"{message.title}\n{message.text}",
        },
        ensure_ascii=False,
    ).encode()


def signature(secret: str, at: int, body: bytes) -> str:
    """The header's value: when it was sent, and HMAC-SHA256 over `<at>.<body>` in hex."""
    digest = hmac.new(secret.encode(), b"%d.%b" % (at, body), hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """The result of one channel; `trouble` is empty when it succeeded."""

    way: str
    trouble: str = ""


def send(message: IncidentMessage, settings: NotifySettings) -> list[DeliveryResult]:
    """Send it by every channel that is set."""
    channels: list[tuple[str, Callable[[], str]]] = []
    webhook, targets = settings.webhook, settings.apprise
    if settings.desktop:
        channels.append(("desktop", lambda: _show_on_desktop(message)))
    if webhook is not None:
        secret = settings.secret
        channels.append(("webhook", lambda: _post_to_webhook(message, webhook, secret)))
    if targets is not None:
        channels.append(("apprise", lambda: _send_by_apprise(message, targets)))
    results = []
    for name, work in channels:
        try:
            trouble = work()
        except urllib.error.HTTPError as error:
            with error:
                trouble = f"it was answered with HTTP status {error.code}"
        except subprocess.TimeoutExpired:
            trouble = f"it took longer than {_TIMEOUT:g} s"
        except (OSError, ValueError, http.client.HTTPException) as error:
            cause = error.reason if isinstance(error, urllib.error.URLError) else error
            # Not its text, which may quote the address.
            known = cause.strerror if isinstance(cause, OSError) else None
            trouble = f"it cannot be reached: {known or type(cause).__name__}"
        results.append(DeliveryResult(name, trouble))
    return results


def _show_on_desktop(message: IncidentMessage) -> str:
    command = desktop_command(message.title, message.text)
    if command is None:
        return "this system has no notify-send, osascript or PowerShell"
    arguments, variables = command
    done = subprocess.run(  # noqa: S603 -- found by us; the texts are arguments or variables
        arguments,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_TIMEOUT * 2,
        check=False,
    )
    return "" if done.returncode == 0 else f"the command ended with code {done.returncode}"


def _post_to_webhook(message: IncidentMessage, url: str, secret: str | None) -> str:
    if not url.startswith(("http://", "https://")):
        return "its address is no http or https address"
    body = webhook_body(message)
    headers = {"content-type": "application/json", "user-agent": "jackline"}
    if secret is not None:
        headers[HEADER] = signature(secret, int(SystemClock().wall()), body)
    post(url, body, headers, _TIMEOUT)
    return ""


def _send_by_apprise(message: IncidentMessage, targets: str) -> str:
    try:
        # An extra, slow to load, and without types.
        sender: Any = import_module("apprise").Apprise()
    except ImportError:
        return "the extra is not installed: pip install 'jackline[notify]'"
    wrong = [number for number, each in enumerate(targets.split(), 1) if not sender.add(each)]
    if wrong:
        return f"address number {', '.join(map(str, wrong))} is none that Apprise knows"
    is_sent = sender.notify(title=message.title, body=message.text)
    return "" if is_sent else "Apprise could not send it to every address"


class Notifier:
    """The messages of one service; `watch` must run for as long as it does."""

    def __init__(
        self,
        settings: Callable[[], NotifySettings],
        facts: Callable[[FlowFacts], Facts],
        runs: StoredRuns,
        clock: Clock,
        send: Callable[[IncidentMessage, NotifySettings], Sequence[DeliveryResult]] = send,
    ) -> None:
        self._settings = settings
        self._facts = facts
        self._runs = runs
        self._clock = clock
        self._send = send
        self._conditions = ConditionFinder()
        self._incidents = Incidents()
        self._sending: set[asyncio.Task[None]] = set()

    async def watch(self) -> None:
        """Look for incidents, and send what is due, until cancelled."""
        try:
            while True:
                await self.look()
                await self._clock.sleep(_LOOK_EVERY)
        finally:
            for task in self._sending:
                task.cancel()
            await asyncio.gather(*self._sending, return_exceptions=True)

    async def look(self) -> list[IncidentMessage]:
        """The messages that are due now; they are being sent."""
        settings = self._settings()
        if not settings.has_ways:
            return []
        self._conditions.budget_share = settings.budget_share
        facts = self._facts(await self._runs.look())
        now = self._clock.now()
        holding = self._conditions.look(facts, now)
        wanted = [each for each in holding if each.about in settings.on]
        quiet = settings.quiet is not None and parse_hours(settings.quiet).next_from(now) == now
        messages = self._incidents.look(self._clock.steady(), wanted, quiet=quiet)
        # How long something holds is a duration; when its message is sent, a date.
        due = [replace(message, at=now.timestamp()) for message in messages]
        for message in due:
            task = asyncio.get_running_loop().create_task(
                self._send_with_retries(message, settings)
            )
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        return due

    async def _send_with_retries(self, message: IncidentMessage, settings: NotifySettings) -> None:
        for tries_left in range(_TRIES - 1, -1, -1):
            sent = await asyncio.to_thread(self._send, message, settings)
            failed = [each for each in sent if each.trouble]
            if not failed:
                return
            for each in failed:
                _log.warning("a message was not sent by %s: %s", each.way, each.trouble)
            # What went is not sent again.
            settings = settings.only([each.way for each in failed])
            if tries_left:
                await self._clock.sleep(_BETWEEN_TRIES)
