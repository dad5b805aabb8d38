"""Sending: real sockets, real commands, signatures that a receiver can check."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.notifications.delivery import (
    HEADER,
    DeliveryResult,
    desktop_command,
    send,
    signature,
    webhook_body,
)
from jackline.notifications.incidents import IncidentMessage
from jackline.notifications.settings import IncidentKind, NotifySettings
from tests.notifications.webhooks import is_signed, receiver

SECRET = "a secret of the receiver"  # noqa: S105 -- a test's
HELLO = IncidentMessage(
    IncidentKind.PARKED, "Jackline: parked", "a is parked; $(reboot) `x` \" '", 12.3456
)


def at_of(header: str) -> int:
    return int(header.partition(",")[0].removeprefix("t="))


def test_a_webhook_gets_the_message_signed() -> None:
    with receiver() as kept:
        assert send(HELLO, NotifySettings(webhook=kept.url, secret=SECRET)) == [
            DeliveryResult("webhook")
        ]
    headers, body = kept.got[0]
    assert json.loads(body) == {
        "schema": "jackline.notification/1",
        "about": "parked",
        "at": 12.346,
        "title": HELLO.title,
        "text": f"{HELLO.title}\n{HELLO.text}",
    }
    signed = headers[HEADER]
    assert is_signed(SECRET, signed, body, now=at_of(signed))
    assert not is_signed("another", signed, body, now=at_of(signed))
    assert not is_signed(SECRET, signed, body + b" ", now=at_of(signed))
    assert not is_signed(SECRET, signed, body, now=at_of(signed) + 301)


def test_without_a_secret_nothing_is_signed() -> None:
    with receiver() as kept:
        send(HELLO, NotifySettings(webhook=kept.url))
    assert HEADER not in kept.got[0][0]


def test_a_way_that_fails_says_why_without_the_address_and_hinders_no_other() -> None:
    with receiver(500) as kept:
        sent = send(HELLO, NotifySettings(webhook=kept.url, apprise="json://127.0.0.1:1"))
    assert sent[0] == DeliveryResult("webhook", "it was answered with HTTP status 500")
    assert [each.way for each in sent] == ["webhook", "apprise"]
    gone = send(HELLO, NotifySettings(webhook="http://127.0.0.1:9/secret-path"))
    assert gone[0].trouble.startswith("it cannot be reached")
    assert "secret-path" not in gone[0].trouble
    strange = send(HELLO, NotifySettings(webhook="file:///etc/passwd"))
    assert strange == [DeliveryResult("webhook", "its address is no http or https address")]


@given(st.text(), st.binary(), st.integers(min_value=0, max_value=10**11))
def test_every_message_is_known_by_its_own_signature_alone(
    secret: str, body: bytes, at: int
) -> None:
    secret = secret.encode("utf-8", "ignore").decode()
    header = signature(secret, at, body)
    assert is_signed(secret, header, body, now=at)
    assert not is_signed(secret, header, body + b"x", now=at)


def test_texts_are_arguments_or_variables_and_never_script() -> None:
    for platform in ("linux", "darwin", "win32"):
        command = desktop_command("title", HELLO.text, platform=platform, which=lambda name: name)
        assert command is not None
        arguments, variables = command
        scripts = [word for word in arguments if word not in ("title", HELLO.text)]
        assert not any("reboot" in word for word in scripts)
        words = {*arguments, *variables.values()}
        assert {"title", HELLO.text} <= words


def test_options_in_texts_are_not_read_as_options() -> None:
    command = desktop_command("--help", "-u low", platform="linux", which=lambda name: name)
    assert command is not None
    assert command[0][-3:] == ["--", "--help", "-u low"]


def test_a_system_without_such_a_command_is_reported() -> None:
    for platform in ("linux", "darwin", "win32"):
        assert desktop_command("a", "b", platform=platform, which=lambda _name: None) is None


@pytest.mark.skipif(os.name == "nt", reason="the script that stands in is for POSIX shells")
def test_the_desktops_own_command_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "osascript" if sys.platform == "darwin" else "notify-send"
    tool = tmp_path / name
    said = tmp_path / "said"
    tool.write_text(f'#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word" >> {said}; done\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert send(HELLO, NotifySettings(desktop=True)) == [DeliveryResult("desktop")]
    if sys.platform != "darwin":
        assert said.read_text().splitlines()[-2:] == [HELLO.title, HELLO.text]


def test_no_secret_is_shown_by_the_settings() -> None:
    settings = NotifySettings(webhook="https://h/T0K3N", secret=SECRET, apprise="tgram://T0K3N")
    assert "T0K3N" not in repr(settings)
    assert SECRET not in repr(settings)
    assert webhook_body(HELLO).decode().isprintable()
