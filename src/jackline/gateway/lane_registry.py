"""Find the account and the lane of a caller: one lane per upstream, account and model.

Rules: (1) a client's own headers and credentials pass unchanged; only ours (`x-jackline-…`) are
removed; headers that came before on the same connection are not parsed again; (2) an account or
credential is stored only as a salted digest; the same credential at another address is another
account; (3) two models, or two accounts, never share a lane; a login is the account that it names
first; (4) of the vendors' verdicts on a credential the latest counts; a refusal counts everywhere,
an acceptance only at the address that gave it: some accept anybody; accepted credentials are saved
over a restart; (5) all memory is bounded: idle lanes that know nothing that counts make room, then
closed ones that never answered, and beyond that none is opened.
Not here: bodies (dialects/), where a call may go (placement.py), what lanes learn (lanes/).
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

from jackline.failures import Json
from jackline.gateway.connection import Exchange
from jackline.gateway.identity import Identity, Who, identify
from jackline.gateway.login_accounts import LoginAccounts
from jackline.gateway.routes import SingleRoute
from jackline.gateway.vendor_limits import LimitReading
from jackline.http1.headers import Headers, request_lines
from jackline.lanes import CacheTtl, KnownLimits, LaneController, LaneSettings
from jackline.providers.rate_limits_api import limits_of
from jackline.providers.settings import Credential, UpstreamSettings

_OURS = b"x-jackline-"
# Answers have to be read while they pass, so they are asked for unpacked.
_UNPACKED = (b"accept-encoding", b"identity")
_MEMO = "caller"
# Clients use some dozens of names; whoever invents more of them gains nothing.
_REMEMBERED_NAMES = 1024


class GatewayCaller(NamedTuple):
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
    places: dict[str, SingleRoute]

    def __repr__(self) -> str:
        return f"<Caller {self.identity}>"


def caller_of(exchange: Exchange, tag: str | None) -> GatewayCaller:
    """The caller of this request."""
    known = exchange.memo.get(_MEMO)
    if isinstance(known, GatewayCaller) and known.identity.tag == tag:
        return known
    header = exchange.header
    identity = identify(header, tag)
    headers = forwarded(exchange.headers)
    key = header(b"x-api-key")
    caller = GatewayCaller(
        identity=identity,
        who=identity.who,
        headers=headers,
        lines=request_lines(headers),
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


_MOST = 10_000
# Written every few seconds while calls pass: those that were heard of last.
_MOST_EXPORTED = 256
_DIGEST_BYTES = 16
_SCHEME = b"bearer"


class KnownClients:
    """The credentials that vendors have judged, each with the latest verdict."""

    def __init__(self, salt: bytes) -> None:
        self._salt = salt[:64]
        self._accepted: OrderedDict[bytes, None] = OrderedDict()
        self._rejected: OrderedDict[bytes, None] = OrderedDict()
        self._doubted: OrderedDict[bytes, None] = OrderedDict()

    def accept(self, url: str, credential: bytes) -> None:
        """The vendor at this address has served this credential, or knows its account."""
        self._rejected.pop(self.digest(credential), None)
        there = self.digest(credential, url)
        self._doubted.pop(there, None)
        _put(self._accepted, there)

    def reject(self, url: str, credential: bytes) -> None:
        """The vendor at this address has refused this credential."""
        self._accepted.pop(self.digest(credential, url), None)
        _put(self._rejected, self.digest(credential))

    def doubt(self, url: str, credential: bytes) -> None:
        """The vendor there works, and has answered this credential without having accepted it."""
        there = self.digest(credential, url)
        if there not in self._accepted:
            _put(self._doubted, there)

    def is_accepted(self, url: str, credential: bytes) -> bool:
        """Whether the vendor at this address has accepted it last."""
        return self.has_accepted(self.digest(credential, url))

    def has_accepted(self, digest: bytes) -> bool:
        """The same of a credential that is known by its digest at an address."""
        return digest in self._accepted

    def is_rejected(self, credential: bytes) -> bool:
        """Whether some vendor has refused it, and none has accepted it since."""
        return bool(self._rejected) and self.digest(credential) in self._rejected

    def is_doubted(self, url: str, credential: bytes) -> bool:
        """Whether the vendor at this address works, and has not accepted it."""
        return bool(self._doubted) and self.digest(credential, url) in self._doubted

    def digest(self, credential: bytes, url: str = "") -> bytes:
        """A name for a credential, everywhere or at one address, that says nothing about it."""
        return hashlib.blake2b(
            b"%b\n%b" % (url.encode(), bare_credential(credential)),
            digest_size=_DIGEST_BYTES,
            key=self._salt,
            person=b"known client",
        ).digest()

    def export(self) -> Json:
        """The accepted ones, to be kept over a restart."""
        return [digest.hex() for digest in list(self._accepted)[-_MOST_EXPORTED:]]

    def restore(self, told: Json) -> None:
        """Take up what was exported; what makes no sense is left out."""
        for each in told if isinstance(told, list) else ():
            try:
                digest = bytes.fromhex(each) if isinstance(each, str) else b""
            except ValueError:
                continue
            if len(digest) == _DIGEST_BYTES:
                _put(self._accepted, digest)


def bare_credential(credential: bytes) -> bytes:
    """The key or token itself, without the scheme and white space around it."""
    credential = credential.strip()
    scheme, _, rest = credential.replace(b"\t", b" ").partition(b" ")
    return rest.strip() if scheme.lower() == _SCHEME else credential


def _put(digests: OrderedDict[bytes, None], digest: bytes) -> None:
    digests[digest] = None
    digests.move_to_end(digest)
    if len(digests) > _MOST:
        digests.popitem(last=False)


# Above the first number idle lanes make room; so many that are in use are the most there can be.
MOST_IDLE = 256
MOST_LANES = 2048
# So many are closed at once: finding them costs something.
_FREED_SHARE = 8


class TooManyLanesError(Exception):
    """As many lanes are in use as there can be."""


def _close_none(_now: float, _most: int) -> None:
    """Who has no calls has no lanes to close."""


class LaneRegistry:
    """The lanes of all upstreams."""

    def __init__(
        self,
        controller: LaneController,
        upstreams: Sequence[UpstreamSettings],
        salt: bytes,
        cache_ttl: CacheTtl = CacheTtl.CLIENT,
    ) -> None:
        self._controller = controller
        self._salt = salt[:64]
        self.clients = KnownClients(salt)
        self.logins = LoginAccounts(salt)
        # Closes idle lanes until there are so many; whoever carries the calls knows which are idle.
        self.close_idle: Callable[[float, int], None] = _close_none
        # The same for lanes that are shut and that no call was ever answered on.
        self.close_unproven: Callable[[float, int], None] = _close_none
        # What vendors' APIs told of limits, by upstream; whoever reads them changes it.
        self.readings: Mapping[str, LimitReading] = {}
        self.use(upstreams, cache_ttl)

    def use(
        self, upstreams: Sequence[UpstreamSettings], cache_ttl: CacheTtl = CacheTtl.CLIENT
    ) -> None:
        """Name and limit the lanes that are opened from now on by these upstreams.

        `cache_ttl` is what is asked of the prompt caches of those that say nothing of it.
        """
        self._upstreams = {each.name: each for each in upstreams}
        self._cache_ttl = cache_ttl

    def upstream(self, lane: str) -> UpstreamSettings | None:
        """Whose lane this is."""
        return self._upstreams.get(lane.partition("/")[0])

    def fingerprint(self, upstream: UpstreamSettings, who: bytes) -> str:
        """A short name for an account or credential that says nothing about it."""
        text = b"%b\n%b" % (upstream.url.encode(), who)
        return hashlib.blake2b(text, digest_size=4, key=self._salt).hexdigest()

    def account(
        self, upstream: UpstreamSettings, caller: GatewayCaller, body: bytes | bytearray
    ) -> str:
        """Who pays for a call there."""
        if upstream.credential is not Credential.PASS_THROUGH:
            return self.fingerprint(upstream, (upstream.secret or "").encode())
        url = upstream.url
        own = caller.accounts.get(url)
        if own is None:
            own = caller.accounts[url] = self.fingerprint(upstream, caller.credential)
        if not caller.bearer or not caller.credential:
            return own
        login = self.clients.digest(caller.credential, url)
        shared = self.logins.fingerprint(login)
        if shared is None:
            self.logins.note_named(login, body)
            return own
        return shared if self.clients.has_accepted(login) else own

    def confirm(self, upstream: UpstreamSettings, credential: bytes, organization: bytes) -> None:
        """A vendor that has accepted a login says which organization it is of."""
        login = self.clients.digest(credential, upstream.url)
        own = self.fingerprint(upstream, credential)
        self.logins.confirm(login, upstream.url, organization, own)

    def lane(self, upstream: UpstreamSettings, model: str, account: str, now: float) -> str:
        """The name of the lane, opened if need be; TooManyLanesError when it cannot be."""
        name = f"{upstream.name}/{model}#{account}"
        lane = self._controller.lanes.get(name)
        if lane is None:
            self._make_room(now)
            self.open(name, now)
        else:
            # It is not closed to make room for another one of the same call.
            lane.used_at = max(lane.used_at, now)
        return name

    def _make_room(self, now: float) -> None:
        lanes = self._controller.lanes
        if len(lanes) >= MOST_IDLE:
            self.close_idle(now, MOST_IDLE - MOST_IDLE // _FREED_SHARE)
        if len(lanes) >= MOST_LANES:
            self.close_unproven(now, MOST_LANES - MOST_LANES // _FREED_SHARE)
        if len(lanes) >= MOST_LANES:
            raise TooManyLanesError

    def open(self, name: str, now: float) -> None:
        """Open a lane by its name, as found in what was remembered over a restart."""
        given = self._given(name)
        if given is not None:
            self._controller.open_lane(now, given)

    def open_lanes(self) -> list[LaneSettings]:
        """The lanes that are open, with what is known of their limits now."""
        found = [self._given(name) for name in self._controller.lanes]
        return [given for given in found if given is not None]

    def _given(self, name: str) -> LaneSettings | None:
        place, _, rest = name.partition("/")
        model, _, account = rest.rpartition("#")
        upstream = self._upstreams.get(place)
        if upstream is None:
            return None
        limits = upstream.limits
        for pattern, given in upstream.model_limits.items():
            if fnmatchcase(model, pattern):
                limits = given
                break
        reading = self.readings.get(place)
        told = None if reading is None else limits_of(model, reading.limits)
        return LaneSettings(
            name,
            account,
            limits,
            told or KnownLimits(),
            local=upstream.local,
            cached_counts=upstream.counts_cached_of(model),
            cache_ttl=upstream.cache_ttl_of(model, self._cache_ttl),
        )


@lru_cache(maxsize=1024)
def shown(name: str) -> str:
    """A lane's name for people: without the account's fingerprint."""
    return name.partition("#")[0]
