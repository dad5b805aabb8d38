"""What a request's headers say about its caller, and what goes on to the upstream of them.

Laws: (1) a client's own headers and credentials pass untouched; only ours (`x-jackline-…`) are
taken off; (2) headers that came before on the same connection are not read again.
Not here: bodies (dialects/), what is done for the caller (desk.py).
"""

from __future__ import annotations

from typing import NamedTuple

from jackline.gateway.choosing import OnlyPlace
from jackline.gateway.exchange import Exchange
from jackline.gateway.identity import Identity, Who, identify
from jackline.upstream.head import header_lines
from jackline.upstream.port import Headers

_OURS = b"x-jackline-"
# Answers have to be read while they pass, so they are asked for unpacked.
_UNPACKED = (b"accept-encoding", b"identity")
_MEMO = "caller"
# Clients use some dozens of names; whoever invents more of them gains nothing.
_REMEMBERED_NAMES = 1024


class Caller(NamedTuple):
    """Who asks; `credential` is what pays, `bearer` whether it is a login that is renewed.

    `accounts` is the lane book's: the fingerprints of the credential, by address;
    `places` is the placing's: where its calls go, by model, as far as nothing else decides.
    """

    identity: Identity
    who: Who | None
    headers: Headers
    lines: bytes
    credential: bytes
    bearer: bool
    afk: bool
    accounts: dict[str, str]
    places: dict[str, OnlyPlace]

    def __repr__(self) -> str:
        return f"<Caller {self.identity}>"


def caller_of(exchange: Exchange, tag: str | None) -> Caller:
    """The caller of this request."""
    known = exchange.memo.get(_MEMO)
    if isinstance(known, Caller) and known.identity.tag == tag:
        return known
    header = exchange.header
    identity = identify(header, tag)
    headers = forwarded(exchange.headers)
    key = header(b"x-api-key")
    caller = Caller(
        identity=identity,
        who=identity.who,
        headers=headers,
        lines=header_lines(headers),
        credential=key or header(b"authorization") or b"",
        bearer=key is None,
        afk=header(b"x-jackline-hold") == b"until-reset",
        accounts={},
        places={},
    )
    exchange.memo[_MEMO] = caller
    return caller


def credential_of(headers: Headers) -> bytes:
    """What a client logs in with, as `Caller.credential` has it; empty where there is nothing."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        found.setdefault(name.lower(), value)
    return found.get(b"x-api-key") or found.get(b"authorization") or b""


class _GoesOn(dict[bytes, bool]):
    """Whether a header of this name goes on to the upstream, remembered for each spelling."""

    def __missing__(self, name: bytes) -> bool:
        plain = name.lower()
        goes_on = plain != b"accept-encoding" and not plain.startswith(_OURS)
        if len(self) < _REMEMBERED_NAMES:
            self[name] = goes_on
        return goes_on


_goes_on = _GoesOn()


def forwarded(headers: Headers) -> Headers:
    """The headers that go on to the upstream."""
    kept = [pair for pair in headers if _goes_on[pair[0]]]
    kept.append(_UNPACKED)
    return kept
