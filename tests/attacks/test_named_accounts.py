"""A caller whose login names the account of somebody else in the body of its requests."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from jackline.assembly import Service
from jackline.gateway.settings import HoldSettings
from tests.assembly.world import Asked, Got, ask, gateway, http, question, request, run, whole
from tests.upstream.loopback import Server, Wire

JSON = (b"Content-Type", b"application/json")
ACCOUNT = "11111111-2222-3333-4444-555555555555"
MINE, RENEWED, THEIRS = b"login-of-the-account", b"renewed-login", b"login-of-another"
MY_ORGANIZATION, THEIR_ORGANIZATION = b"org-of-the-account", b"org-of-another"
REFUSED_AT_ONCE = HoldSettings(quota=0.0)


def walled() -> bytes:
    return http(
        429,
        b'{"type":"error","error":{"type":"rate_limit_error","message":"limit"}}',
        JSON,
        (b"anthropic-ratelimit-unified-status", b"rejected"),
        (b"anthropic-ratelimit-unified-representative-claim", b"seven_day"),
        (b"anthropic-ratelimit-unified-reset", b"%d" % (time.time() + 6 * 86400)),
    )


def refused() -> bytes:
    error = {"type": "authentication_error", "message": "invalid bearer token"}
    return http(401, json.dumps({"type": "error", "error": error}).encode(), JSON)


@dataclass(slots=True)
class Vendor:
    """Knows some logins, each of an organization that its answers name; refuses all others."""

    organizations: dict[bytes, bytes | None]
    spent: set[bytes] = field(default_factory=set)
    asked: list[bytes] = field(default_factory=list)

    async def serve(self, wire: Wire) -> None:
        while raw := await wire.request():
            login = (Asked(raw).header(b"authorization") or b"").removeprefix(b"Bearer ")
            self.asked.append(login)
            await wire.say(self._answer(login))

    def _answer(self, login: bytes) -> bytes:
        if login not in self.organizations:
            return refused()
        if login in self.spent:
            return walled()
        organization = self.organizations[login]
        told = [] if organization is None else [(b"anthropic-organization-id", organization)]
        limits = (
            (b"anthropic-ratelimit-input-tokens-limit", b"400000"),
            (b"anthropic-ratelimit-input-tokens-remaining", b"400000"),
            (b"anthropic-ratelimit-input-tokens-reset", b"2030-01-01T00:00:00Z"),
        )
        return http(200, whole(), JSON, *limits, *told)


@asynccontextmanager
async def vendor(**organizations: bytes | None) -> AsyncIterator[tuple[Vendor, str]]:
    """A vendor that knows the logins of the account, and the one of somebody else."""
    mine = organizations.get("mine", MY_ORGANIZATION)
    known = Vendor({MINE: mine, RENEWED: mine, THEIRS: THEIR_ORGANIZATION})
    async with Server(known.serve) as server:
        yield known, server.url


async def call(service: Service, login: bytes, text: str = "hi", account: str = ACCOUNT) -> Got:
    body = question(text, metadata={"user_id": json.dumps({"account_uuid": account})})
    header = (b"authorization", b"Bearer " + login)
    return await ask(service.url, request(b"POST", b"/v1/messages", body, header, key=None))


def test_refused_logins_that_name_an_account_cost_it_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with vendor() as (_, url), gateway(tmp_path, url) as service:
            assert (await call(service, MINE)).status == 200
            lanes = service.desk.carrier.controller.lanes
            (mine,) = lanes.values()
            sent = mine.allowance.input, mine.allowance.requests
            for number in range(10):
                got = await call(service, b"junk-%d" % number, "word " * 60_000)
                assert got.status == 401
            assert (mine.allowance.input, mine.allowance.requests) == sent
            assert (await call(service, MINE)).status == 200
            assert mine.allowance.requests == sent[1] + 1

    run(main())


@pytest.mark.parametrize("first", [MINE, THEIRS], ids=["after it", "before it"])
def test_a_wall_of_a_login_that_names_an_account_parks_its_own_calls_alone(
    tmp_path: Path, first: bytes
) -> None:
    """Also of one that the vendor has accepted: its answers name another organization."""
    second = THEIRS if first is MINE else MINE

    async def main() -> None:
        async with (
            vendor() as (known, url),
            gateway(tmp_path, url, hold=REFUSED_AT_ONCE) as service,
        ):
            for login in (first, second, first, second):
                assert (await call(service, login)).status == 200
            known.spent.add(THEIRS)
            assert (await call(service, THEIRS)).status == 429
            known.asked.clear()
            assert (await call(service, THEIRS)).status == 429
            assert known.asked == []
            assert (await call(service, MINE)).status == 200
            assert known.asked == [MINE]

    run(main())


def test_a_wall_of_an_unknown_login_that_names_an_account_parks_its_own_calls_alone(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with (
            vendor() as (known, url),
            gateway(tmp_path, url, hold=REFUSED_AT_ONCE) as service,
        ):
            assert (await call(service, MINE)).status == 200
            known.spent.add(THEIRS)
            assert (await call(service, THEIRS)).status == 429
            assert (await call(service, MINE)).status == 200

    run(main())


def test_a_renewed_login_of_the_same_account_and_organization_shares_its_lanes(
    tmp_path: Path,
) -> None:
    """What one of them learns counts for the other, also after a restart."""

    async def main() -> None:
        async with vendor() as (known, url):
            async with gateway(tmp_path, url, hold=REFUSED_AT_ONCE) as service:
                for login in (MINE, RENEWED, RENEWED):
                    assert (await call(service, login)).status == 200
                known.spent.update((MINE, RENEWED))
                assert (await call(service, RENEWED)).status == 429
                known.asked.clear()
                assert (await call(service, MINE)).status == 429
                assert (await call(service, RENEWED)).status == 429
                assert known.asked == []
            async with gateway(tmp_path, url, hold=REFUSED_AT_ONCE) as service:
                assert (await call(service, RENEWED)).status == 429
                assert (await call(service, MINE)).status == 429
                assert known.asked == []

    run(main())


def test_a_login_that_was_refused_since_shares_nothing_more(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            vendor() as (known, url),
            gateway(tmp_path, url, hold=REFUSED_AT_ONCE) as service,
        ):
            for login in (MINE, RENEWED, RENEWED):
                assert (await call(service, login)).status == 200
            organization = known.organizations.pop(RENEWED)
            assert (await call(service, RENEWED)).status == 401
            known.organizations[RENEWED] = organization
            known.spent.add(RENEWED)
            assert (await call(service, RENEWED)).status == 429
            assert (await call(service, MINE)).status == 200

    run(main())


def test_where_the_vendor_names_no_organization_each_login_is_its_own_account(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with (
            vendor(mine=None) as (known, url),
            gateway(tmp_path, url, hold=REFUSED_AT_ONCE) as service,
        ):
            for login in (MINE, RENEWED, RENEWED):
                assert (await call(service, login)).status == 200
            known.spent.add(RENEWED)
            assert (await call(service, RENEWED)).status == 429
            assert (await call(service, MINE)).status == 200

    run(main())


def test_no_account_or_organization_is_written_to_disk(tmp_path: Path) -> None:
    async def main() -> None:
        async with vendor() as (_, url), gateway(tmp_path, url) as service:
            for login in (MINE, RENEWED, RENEWED):
                assert (await call(service, login)).status == 200

    run(main())
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    for secret in (MINE, RENEWED, ACCOUNT.encode(), MY_ORGANIZATION):
        assert secret not in kept
