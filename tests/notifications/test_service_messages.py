"""Messages of a whole service, and on the command line."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from jackline.assembly import Service
from jackline.errors import BadConfigError
from jackline.notifications.delivery import HEADER
from jackline.notifications.settings import IncidentKind, NotifySettings
from tests.assembly.world import ask, config_for, http, provider, question, request, run, until
from tests.config.places import Machine
from tests.notifications.diagnosed import diagnosed
from tests.notifications.webhooks import receiver
from tests.planted import KEY

SECRET = "a secret of the receiver"  # noqa: S105 -- a test's
NOTIFIES = {"notify desktop", "notify webhook", "notify apprise", "notifications"}
REFUSED = http(
    401, b'{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}'
)


def test_a_refused_key_is_reported_once_however_many_agents_meet_it(tmp_path: Path) -> None:
    async def main(hook: str) -> None:
        async with provider(REFUSED) as (_, url):
            config = config_for(tmp_path, url)
            notify = NotifySettings(webhook=hook, secret=SECRET)
            async with Service(replace(config, notify=notify)) as service:
                for number in range(5):
                    who = (b"x-claude-code-session-id", b"s%d" % number)
                    await ask(service.url, request(b"POST", b"/v1/messages", question(), who))
                first = await service._notifier.look()
                assert [message.about for message in first] == [IncidentKind.NEEDS_YOU]
                await ask(service.url, request(b"POST", b"/v1/messages", question()))
                assert await service._notifier.look() == []
                await until(lambda: bool(kept.got))

    with receiver() as kept:
        run(main(kept.url))
    headers, body = kept.got[0]
    assert len(kept.got) == 1
    assert HEADER in headers
    assert json.loads(body)["text"].endswith("refuses the key or login: sign in again.")
    assert KEY.encode() not in body


def test_what_is_not_configured_is_not_reported(tmp_path: Path) -> None:
    async def main(hook: str) -> None:
        async with provider(REFUSED) as (_, url):
            notify = NotifySettings(on=(IncidentKind.PARKED,), webhook=hook)
            async with Service(replace(config_for(tmp_path, url), notify=notify)) as service:
                await ask(service.url, request(b"POST", b"/v1/messages", question()))
                assert await service._notifier.look() == []
                await asyncio.sleep(0)

    with receiver() as kept:
        run(main(kept.url))
    assert kept.got == []


def test_doctor_sends_a_test_message_by_every_channel(tmp_path: Path) -> None:
    with receiver() as kept:
        file = tmp_path / "own.toml"
        file.write_text(f'[notify]\nwebhook = "{kept.url}"\nsecret = "env:HOOK_SECRET"\n')
        finding = diagnosed(file, HOOK_SECRET=SECRET)["notify webhook"]
        assert len(kept.got) == 1
        assert diagnosed(file, "--no-notify", HOOK_SECRET=SECRET).keys().isdisjoint(NOTIFIES)
        assert len(kept.got) == 1
    assert (finding["mark"], finding["says"]) == ("ok", "a test message was sent")
    assert json.loads(kept.got[0][1])["title"] == "Jackline: a test"
    assert HEADER in kept.got[0][0]


def test_doctor_fails_when_a_message_is_refused(tmp_path: Path) -> None:
    with receiver(403) as kept:
        file = tmp_path / "own.toml"
        file.write_text(f'[notify]\nwebhook = "{kept.url}"\n')
        finding = diagnosed(file)["notify webhook"]
    assert finding["mark"] == "fail"
    assert "it was answered with HTTP status 403" in finding["says"]
    assert "jackline config path" in finding["fix"]


def test_a_secret_that_cannot_be_read_sends_nothing(tmp_path: Path) -> None:
    with receiver() as kept:
        file = tmp_path / "own.toml"
        file.write_text(f'[notify]\nwebhook = "{kept.url}"\nsecret = "env:NO_SUCH_SECRET"\n')
        findings = diagnosed(file)
    assert findings["configuration"]["mark"] == "fail"
    assert findings.keys().isdisjoint(NOTIFIES)
    assert kept.got == []


def test_doctor_without_any_channel_says_that_none_is_set(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text("")
    finding = diagnosed(file)["notifications"]
    assert (finding["mark"], finding["says"]) == ("ok", "no channel is set under [notify]")


def test_a_projects_file_may_not_say_where_messages_go(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.write('[notify]\nwebhook = "https://stranger.example/hook"\n')
    config = machine.load()
    assert config.notify.webhook is None
    assert "notify.webhook (it belongs in your own file" in config.warnings[0]
    machine.write_own('[notify]\nwebhook = "https://mine.example/hook"\n')
    assert machine.load().notify.webhook == "https://mine.example/hook"


def test_a_secret_in_the_configuration_itself_is_a_fault_that_does_not_show_it(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path)
    for line in (
        'secret = "T0K3N"',
        'apprise = "tgram://T0K3N"',
        'webhook = "https://h.example/?key=T0K3N"',
        'quiet = "whenever"',
    ):
        machine.write_own(f"[notify]\n{line}\n")
        with pytest.raises(BadConfigError) as error:
            machine.load()
        assert "T0K3N" not in str(error.value)
