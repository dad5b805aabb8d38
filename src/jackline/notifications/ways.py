"""Send a message by every way that is set, and say of each whether it went.

Laws: (1) called off the event loop: all of this waits; (2) a way that fails hinders no other; (3)
what went wrong is told without the address, which may hold a secret.
Not here: what is sent and when (incidents.py).
"""

from __future__ import annotations

import http.client
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from jackline.clock import SystemClock
from jackline.notifications.desktop import desktop_command
from jackline.notifications.incidents import Message
from jackline.notifications.settings import NotifySettings
from jackline.notifications.signing import HEADER, body_of, signature

_SECONDS = 10.0
_NO_DESKTOP = "this system has no notify-send, osascript or PowerShell"
_NO_APPRISE = "the extra is not installed: pip install 'jackline[notify]'"


@dataclass(frozen=True, slots=True)
class Sent:
    """What came of one way; `trouble` is empty when it went."""

    way: str
    trouble: str = ""


def send(message: Message, settings: NotifySettings) -> list[Sent]:
    """Send it by every way that is set."""
    return [Sent(way, _tried(work)) for way, work in _ways(message, settings)]


def _ways(message: Message, settings: NotifySettings) -> Iterator[tuple[str, Callable[[], str]]]:
    webhook, targets = settings.webhook, settings.apprise
    if settings.desktop:
        yield "desktop", lambda: _on_desktop(message)
    if webhook is not None:
        yield "webhook", lambda: _to_webhook(message, webhook, settings.secret)
    if targets is not None:
        yield "apprise", lambda: _by_apprise(message, targets)


def _tried(work: Callable[[], str]) -> str:
    try:
        return work()
    except urllib.error.HTTPError as error:
        with error:
            return f"it was answered with HTTP status {error.code}"
    except subprocess.TimeoutExpired:
        return f"it took longer than {_SECONDS:g} s"
    except urllib.error.URLError as error:
        return f"it cannot be reached: {_cause(error.reason)}"
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"it cannot be reached: {_cause(error)}"


def _cause(error: object) -> str:
    # Not its words: they may quote the address.
    known = error.strerror if isinstance(error, OSError) else None
    return known or type(error).__name__


def _on_desktop(message: Message) -> str:
    command = desktop_command(message.title, message.text)
    if command is None:
        return _NO_DESKTOP
    done = subprocess.run(  # noqa: S603 -- found by us; the words are arguments or variables
        command.arguments,
        env={**os.environ, **command.variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_SECONDS * 2,
        check=False,
    )
    return "" if done.returncode == 0 else f"the command ended with code {done.returncode}"


def _to_webhook(message: Message, url: str, secret: str | None) -> str:
    if not url.startswith(("http://", "https://")):
        return "its address is no http or https address"
    body = body_of(message)
    headers = {"content-type": "application/json", "user-agent": "jackline"}
    if secret is not None:
        headers[HEADER] = signature(secret, int(SystemClock().wall()), body)
    request = urllib.request.Request(url, body, headers)  # noqa: S310 -- http or https
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
        answer.read(1024)
    return ""


def _by_apprise(message: Message, targets: str) -> str:
    try:
        # An extra, slow to load, and without types.
        sender: Any = import_module("apprise").Apprise()
    except ImportError:
        return _NO_APPRISE
    wrong = [number for number, each in enumerate(targets.split(), 1) if not sender.add(each)]
    if wrong:
        return f"address number {', '.join(map(str, wrong))} is none that Apprise knows"
    went = sender.notify(title=message.title, body=message.text)
    return "" if went else "Apprise could not send it to every address"
