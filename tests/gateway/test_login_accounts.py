"""Which logins are taken to be of one account, and what of that is kept over a restart."""

from __future__ import annotations

import json

import pytest

from jackline.failures import Json
from jackline.gateway import lane_registry
from jackline.gateway.lane_registry import LoginAccounts

URL = "https://vendor.example"
ONE, TWO = b"1" * 16, b"2" * 16


def naming(account: str) -> bytes:
    user = json.dumps({"account_uuid": account})
    return json.dumps({"metadata": {"user_id": user}}).encode()


def told(
    logins: LoginAccounts, login: bytes, account: str, organization: bytes, url: str = URL
) -> str | None:
    logins.note_named(login, naming(account))
    logins.confirm(login, url, organization, login.hex()[:8])
    return logins.fingerprint(login)


def test_two_logins_that_name_one_account_of_one_organization_are_one() -> None:
    logins = LoginAccounts(b"salt")
    assert told(logins, ONE, "a", b"org") == ONE.hex()[:8]
    assert told(logins, TWO, "a", b"org") == ONE.hex()[:8]


@pytest.mark.parametrize(
    ("account", "organization", "url"),
    [("b", b"org", URL), ("a", b"another", URL), ("a", b"org", "https://other.example")],
)
def test_another_account_organization_or_address_is_another(
    account: str, organization: bytes, url: str
) -> None:
    logins = LoginAccounts(b"salt")
    told(logins, ONE, "a", b"org")
    assert told(logins, TWO, account, organization, url) == TWO.hex()[:8]


def test_a_login_is_nothing_before_it_is_confirmed_and_then_what_it_named_first() -> None:
    logins = LoginAccounts(b"salt")
    told(logins, ONE, "a", b"org")
    logins.confirm(TWO, URL, b"org", "22222222")
    assert logins.fingerprint(TWO) is None
    logins.note_named(TWO, naming("b"))
    assert logins.fingerprint(TWO) is None
    assert told(logins, TWO, "a", b"org") == TWO.hex()[:8]


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_registry, "_MOST", 3)
    logins = LoginAccounts(b"salt")
    known = [told(logins, b"%016d" % number, str(number), b"org") for number in range(9)]
    assert None not in known
    kept = [logins.fingerprint(b"%016d" % number) is not None for number in range(9)]
    assert kept == [False] * 6 + [True] * 3


def test_what_is_kept_over_a_restart_counts_under_the_same_salt() -> None:
    before, after = LoginAccounts(b"salt"), LoginAccounts(b"salt")
    told(before, ONE, "a", b"org")
    after.restore(json.loads(json.dumps(before.export())))
    assert after.fingerprint(ONE) == ONE.hex()[:8]
    assert told(after, TWO, "a", b"org") == ONE.hex()[:8]


@pytest.mark.parametrize(
    "kept",
    [
        None,
        [],
        {"first": 1, "shared": []},
        {"shared": {"zz": "0011aabb", "00": "0011aabb", ONE.hex(): 7, TWO.hex(): "../../etc"}},
    ],
)
def test_what_makes_no_sense_is_left_out(kept: Json) -> None:
    logins = LoginAccounts(b"salt")
    logins.restore(kept)
    assert logins.export() == {"first": {}, "shared": {}}
