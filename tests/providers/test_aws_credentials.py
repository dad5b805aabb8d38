"""AWS's own credentials: found by botocore's chain, fetched anew in time, used to sign."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType

import pytest

from jackline.errors import UsageError
from jackline.event_loop import run
from jackline.providers.bedrock import AwsCredentials, AwsKeys
from jackline.providers.provided_upstream import provider_for
from jackline.providers.provider import Provider
from jackline.providers.sent_request import UnsupportedRequestError
from jackline.providers.settings import Credential, UpstreamKind, UpstreamSettings
from tests.providers.exchanges import answer, call, exchange, replying

MODEL = "claude-opus-4-8"
KEY = "ABSK-of-the-upstream"


def settings(
    credential: Credential,
    url: str = "http://127.0.0.1:1",
    headers: Mapping[str, str] = MappingProxyType({}),
) -> UpstreamSettings:
    return UpstreamSettings(
        kind=UpstreamKind.BEDROCK,
        url=url,
        credential=credential,
        secret=KEY,
        region="us-east-1",
        headers=headers,
    )


@pytest.fixture
def no_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without an AWS login; returns its config file."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return tmp_path / "config"


def signed(url: str, headers: Mapping[str, str] = MappingProxyType({})) -> Provider:
    return provider_for(settings(Credential.VENDOR, url, headers), {})


@pytest.mark.usefixtures("no_aws")
def test_keys_of_the_environment_sign_what_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-key")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "a-token")
    keys = AwsKeys("AKIDEXAMPLE", "a-secret-key", "a-token")

    async def main() -> None:
        got: list[bytes] = []
        async with replying(answer(b"{}"), got=got) as server:
            own = {"X-Amzn-Bedrock-Trace": "DISABLED", "X-Team": "ours"}
            provider = signed(f"{server.url}/prefix", own)
            reported = await exchange(provider, call(), MODEL, got)
        head = reported.request.partition(b"\r\n\r\n")[0].decode().split("\r\n")
        sent = dict(line.split(": ", 1) for line in head[1:])
        covered = sent["Authorization"].partition("SignedHeaders=")[2].partition(",")[0]
        assert covered == (
            "accept;content-type;host;x-amz-date;x-amz-security-token;x-amzn-bedrock-trace"
        )
        stamp = datetime.strptime(sent["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        stored = ("Content-Type", "Accept", "X-Amzn-Bedrock-Trace")
        path = head[0].split(" ")[1]
        assert path == "/prefix/model/us.anthropic.claude-opus-4-8/invoke"
        headers, body = {name: sent[name] for name in stored}, reported.request_body
        again = keys.sign((sent["Host"], path), headers, body, "us-east-1", stamp)
        assert again["Authorization"] == sent["Authorization"]
        assert sent["X-Amz-Security-Token"] == "a-token"
        assert sent["X-Team"] == "ours"
        assert abs(datetime.now(UTC) - stamp) < timedelta(minutes=5)

    run(main())


def lend_keys(config: Path, seconds: int) -> Path:
    """A profile whose keys come from a program; each run of it leaves a line in the log."""
    log, script = config.with_name("log"), config.with_name("lend.py")
    expires = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()
    script.write_text(
        "import json\n"
        f"with open({str(log)!r}, 'a') as log: log.write('requested\\n')\n"
        f"print(json.dumps(dict(Version=1, AccessKeyId='AKID', SecretAccessKey='s',"
        f" SessionToken='t', Expiration={expires!r})))\n"
    )
    config.write_text(f'[default]\ncredential_process = "{sys.executable}" "{script}"\n')
    return log


@pytest.mark.usefixtures("no_aws")
def test_before_the_keys_were_fetched_nothing_is_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-key")

    async def main() -> None:
        provider = signed("http://127.0.0.1:1")
        with pytest.raises(UnsupportedRequestError):
            provider.render(call(), MODEL)
        before = provider.is_ready
        await provider.prepare()
        assert (before, provider.is_ready) == (False, True)

    run(main())


@pytest.mark.parametrize(("seconds", "fresh"), [(120, False), (3600, True)])
def test_keys_that_soon_expire_are_fetched_anew_before_they_are_used(
    no_aws: Path, seconds: int, fresh: bool
) -> None:
    log = lend_keys(no_aws, seconds)

    async def main() -> None:
        credentials = AwsCredentials()
        await credentials.prepare()
        assert credentials.keys == AwsKeys("AKID", "s", "t")
        assert credentials.are_fresh is fresh
        requested = len(log.read_text().splitlines())
        await credentials.prepare()
        assert (len(log.read_text().splitlines()) > requested) is not fresh

    run(main())


def test_keys_of_a_file_are_read_again_after_some_minutes(no_aws: Path) -> None:
    """They say nothing of their end, and tools that lend keys write new ones to the same place."""
    now = 1000.0

    def lend(name: str) -> None:
        no_aws.write_text(f"[default]\naws_access_key_id = {name}\naws_secret_access_key = s\n")

    async def main() -> None:
        nonlocal now
        lend("first")
        credentials = AwsCredentials(lambda: now)
        await credentials.prepare()
        now += 299
        fresh = [credentials.are_fresh]
        now += 1
        fresh.append(credentials.are_fresh)
        lend("second")
        await credentials.prepare()
        assert [*fresh, credentials.are_fresh] == [True, False, True]
        assert credentials.keys == AwsKeys("second", "s")

    run(main())


@pytest.mark.usefixtures("no_aws")
def test_without_a_login_the_error_says_what_to_do() -> None:
    async def main() -> None:
        provider = signed("http://127.0.0.1:1")
        with pytest.raises(UsageError) as reported:
            await provider.prepare()
        assert "aws sso login" in reported.value.hint

    run(main())


def test_a_login_that_fails_is_reported_with_what_to_do_and_without_its_text(no_aws: Path) -> None:
    no_aws.write_text(
        f'[default]\ncredential_process = "{sys.executable}" -c "exit(\'PRIVATE\')"\n'
    )

    async def main() -> None:
        with pytest.raises(UsageError, match="CredentialRetrievalError") as reported:
            await signed("http://127.0.0.1:1").prepare()
        assert "PRIVATE" not in str(reported.value)
        assert "aws sso login" in reported.value.hint

    run(main())


def test_a_credential_server_that_is_not_reached_is_a_connection_error(
    no_aws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A role that is to be assumed at an address where nobody listens."""
    web_token = no_aws.with_name("web-token")
    web_token.write_text("token")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(web_token))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/mine")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")

    async def main() -> None:
        with pytest.raises(ConnectionError, match="EndpointConnectionError"):
            await signed("http://127.0.0.1:1").prepare()

    run(main())


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore", None)
    with pytest.raises(UsageError) as reported:
        signed("http://127.0.0.1:1")
    assert reported.value.hint == "Run: pip install 'jackline[bedrock]'"
    assert provider_for(settings(Credential.BEARER), {}).is_ready, "a Bedrock key needs no library"
