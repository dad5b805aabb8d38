"""Know which logins are of one account, so that they share its lanes.

A login's token is renewed every few hours, and what is known of its account's limits should outlive
it. Clients name the account in the body of a request, which anybody can write.

Rules: (1) two logins are of one account only when both name it and the vendor's answers to both
name the same organization; (2) until then, and where the vendor names none, each login is an
account of its own; (3) a login is the account that it names first, whatever it names later: each
one more would open further lanes; (4) the lanes are those of the login that was the first of its
account, so that nothing moves for whoever has one login alone; (5) tokens, accounts and
organizations are kept as digests under the state folder's salt, never as themselves; (6) what is
known is bounded, and remembered over a restart.
Not here: which credentials are accepted (lane_registry.py), the lanes (lane_registry.py).
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from typing import TypeVar

from jackline.dialects import account_of
from jackline.failures import Json

_MOST = 10_000
# Written every few seconds while calls pass: those that were added last.
_MOST_EXPORTED = 256
_DIGEST_BYTES = 16
_Value = TypeVar("_Value", str, bytes)
_FINGERPRINT = re.compile(r"[0-9a-f]{8}")


class LoginAccounts:
    """The accounts that logins name, and the fingerprints under which they have lanes."""

    def __init__(self, salt: bytes) -> None:
        self._salt = salt[:64]
        # The account that each login has named first.
        self._named: OrderedDict[bytes, bytes] = OrderedDict()
        # The fingerprint of the first login of each account, and of each login's account.
        self._first: OrderedDict[bytes, str] = OrderedDict()
        self._shared: OrderedDict[bytes, str] = OrderedDict()

    def note_named(self, login: bytes, body: bytes | bytearray) -> None:
        """Remember which account the body of a login's request names."""
        if login in self._named:
            return
        account = account_of(body)
        if account is not None:
            _put(self._named, login, self._digest(b"account", account.encode()))

    def confirm(self, login: bytes, url: str, organization: bytes, own: str) -> None:
        """The vendor there says whose a login is, which has lanes of its own under `own`."""
        account = self._named.get(login)
        if account is None or login in self._shared:
            return
        group = self._digest(b"group", account, self._digest(b"org", organization), url.encode())
        first = self._first.get(group)
        if first is None:
            first = own
            _put(self._first, group, own)
        _put(self._shared, login, first)

    def fingerprint(self, login: bytes) -> str | None:
        """The fingerprint of the account that this login was confirmed to be of, or None."""
        return self._shared.get(login)

    def export(self) -> Json:
        """What outlives a restart."""
        return {"first": _latest(self._first), "shared": _latest(self._shared)}

    def restore(self, told: Json) -> None:
        """Take up what was exported; what makes no sense is left out."""
        if isinstance(told, dict):
            _take_up(self._first, told.get("first"))
            _take_up(self._shared, told.get("shared"))

    def _digest(self, kind: bytes, *parts: bytes) -> bytes:
        return hashlib.blake2b(
            b"\n".join(parts), digest_size=_DIGEST_BYTES, key=self._salt, person=kind
        ).digest()


def _put(known: OrderedDict[bytes, _Value], key: bytes, value: _Value) -> None:
    known[key] = value
    if len(known) > _MOST:
        known.popitem(last=False)


def _latest(known: OrderedDict[bytes, str]) -> dict[str, Json]:
    return {key.hex(): known[key] for key in list(known)[-_MOST_EXPORTED:]}


def _take_up(known: OrderedDict[bytes, str], told: Json) -> None:
    for name, fingerprint in told.items() if isinstance(told, dict) else ():
        try:
            key = bytes.fromhex(name)
        except ValueError:
            continue
        is_fingerprint = isinstance(fingerprint, str) and _FINGERPRINT.fullmatch(fingerprint)
        if len(key) == _DIGEST_BYTES and is_fingerprint:
            _put(known, key, str(fingerprint))
