"""Find the account and the lane of a caller: one lane per upstream, account and model.

Rules: (1) accounts and credentials are stored only as salted digests, per address; two models, or
two accounts, never share a lane; (2) of the vendors' verdicts on a credential the latest counts; a
refusal counts everywhere, an acceptance only at the address that gave it: some accept anybody; (3)
a login is of the account that it names first; two logins are of one account only when both name it
and the vendor's answers to both name the same organization; its lanes are those of its first login;
(4) all memory is bounded: idle lanes that know nothing that counts make room, then closed ones that
never answered, and beyond that none is opened.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypeVar

from jackline.dialects import account_of
from jackline.failures import Json
from jackline.gateway.caller import GatewayCaller
from jackline.gateway.vendor_limits import LimitReading
from jackline.lanes import CacheTtl, KnownLimits, LaneController, LaneId, LaneSettings
from jackline.providers.rate_limits_api import limits_of
from jackline.providers.settings import Credential, UpstreamSettings

_MOST = 10_000
# Saved every few seconds while calls pass: those that were added last.
_MOST_EXPORTED = 256
_DIGEST_BYTES = 16
_SCHEME = b"bearer"
_FINGERPRINT = re.compile(r"[0-9a-f]{8}")
_Value = TypeVar("_Value", str, bytes, None)


def _put(known: OrderedDict[bytes, _Value], key: bytes, value: _Value) -> None:
    known[key] = value
    if len(known) > _MOST:
        known.popitem(last=False)


def _put_last(digests: OrderedDict[bytes, None], digest: bytes) -> None:
    _put(digests, digest, None)
    digests.move_to_end(digest)


def _digest_in(text: Json) -> bytes | None:
    """The digest that was exported as this text, or None."""
    try:
        digest = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        return None
    return digest if len(digest) == _DIGEST_BYTES else None


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
        _put_last(self._accepted, there)

    def reject(self, url: str, credential: bytes) -> None:
        """The vendor at this address has refused this credential."""
        self._accepted.pop(self.digest(credential, url), None)
        _put_last(self._rejected, self.digest(credential))

    def doubt(self, url: str, credential: bytes) -> None:
        """The vendor there works, and has answered this credential without having accepted it."""
        there = self.digest(credential, url)
        if there not in self._accepted:
            _put_last(self._doubted, there)

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
        """A name for a credential, everywhere or at one address, that reveals nothing of it."""
        return hashlib.blake2b(
            b"%b\n%b" % (url.encode(), bare_credential(credential)),
            digest_size=_DIGEST_BYTES,
            key=self._salt,
            person=b"known client",
        ).digest()

    def export(self) -> Json:
        """The accepted ones, to be saved over a restart."""
        return [digest.hex() for digest in list(self._accepted)[-_MOST_EXPORTED:]]

    def restore(self, saved: Json) -> None:
        """Restore what was exported; what makes no sense is left out."""
        for text in saved if isinstance(saved, list) else ():
            digest = _digest_in(text)
            if digest is not None:
                _put_last(self._accepted, digest)


def bare_credential(credential: bytes) -> bytes:
    """The key or token itself, without the scheme and white space around it."""
    credential = credential.strip()
    scheme, _, rest = credential.replace(b"\t", b" ").partition(b" ")
    return rest.strip() if scheme.lower() == _SCHEME else credential


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
        """The vendor there has named the organization of a login, whose own lanes are `own`'s."""
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
        tables = {"first": self._first, "shared": self._shared}
        return {
            name: {key.hex(): known[key] for key in list(known)[-_MOST_EXPORTED:]}
            for name, known in tables.items()
        }

    def restore(self, saved: Json) -> None:
        """Restore what was exported; what makes no sense is left out."""
        if not isinstance(saved, dict):
            return
        for known, table in (
            (self._first, saved.get("first")),
            (self._shared, saved.get("shared")),
        ):
            for text, fingerprint in table.items() if isinstance(table, dict) else ():
                key = _digest_in(text)
                is_known = isinstance(fingerprint, str) and _FINGERPRINT.fullmatch(fingerprint)
                if key is not None and is_known:
                    _put(known, key, str(fingerprint))

    def _digest(self, kind: bytes, *parts: bytes) -> bytes:
        return hashlib.blake2b(
            b"\n".join(parts), digest_size=_DIGEST_BYTES, key=self._salt, person=kind
        ).digest()


# Above the first number idle lanes make room; of lanes in use there can be the second.
MOST_IDLE = 256
MOST_LANES = 2048
# So many are closed at once: finding them costs something.
_FREED_SHARE = 8


def fits_lane(pattern: str, lane: LaneId) -> bool:
    """Whether an order that names an upstream, or a pattern of lanes, is about this lane."""
    return lane.upstream == pattern or fnmatchcase(lane.label, pattern)


class TooManyLanesError(Exception):
    """As many lanes are in use as there can be."""


def _close_none(_now: float, _most: int) -> None:
    """Without calls there are no lanes to close."""


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
        # Closes idle lanes until there are so many; the call manager knows which are idle.
        self.close_idle: Callable[[float, int], None] = _close_none
        # The same for lanes that are shut and that no call was ever answered on.
        self.close_unproven: Callable[[float, int], None] = _close_none
        # What vendors' APIs reported of limits, by upstream; VendorLimits changes it.
        self.readings: Mapping[str, LimitReading] = {}
        # Upstreams and patterns of lanes that somebody has paused: also lanes that open later.
        self.paused: tuple[str, ...] = ()
        self.use(upstreams, cache_ttl)

    def use(
        self, upstreams: Sequence[UpstreamSettings], cache_ttl: CacheTtl = CacheTtl.CLIENT
    ) -> None:
        """Name and limit the lanes that are opened from now on by these upstreams.

        `cache_ttl` is for the prompt caches of those that do not configure it.
        """
        self._upstreams = {each.name: each for each in upstreams}
        self._cache_ttl = cache_ttl

    def upstream(self, lane: LaneId) -> UpstreamSettings | None:
        """Whose lane this is."""
        return self._upstreams.get(lane.upstream)

    def fingerprint(self, upstream: UpstreamSettings, who: bytes) -> str:
        """A short name for an account or credential that reveals nothing of it."""
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
        """A vendor that has accepted a login has named its organization."""
        login = self.clients.digest(credential, upstream.url)
        own = self.fingerprint(upstream, credential)
        self.logins.confirm(login, upstream.url, organization, own)

    def lane(self, upstream: UpstreamSettings, model: str, account: str, now: float) -> LaneId:
        """The lane, opened if need be; TooManyLanesError when it cannot be."""
        lane_id = LaneId(upstream.name, model, account)
        lane = self._controller.lanes.get(lane_id)
        if lane is None:
            self._make_room(now)
            self.open(lane_id, now)
            return lane_id
        # It is not closed to make room for another one of the same call.
        lane.used_at = max(lane.used_at, now)
        return lane.id

    def _make_room(self, now: float) -> None:
        lanes = self._controller.lanes
        if len(lanes) >= MOST_IDLE:
            self.close_idle(now, MOST_IDLE - MOST_IDLE // _FREED_SHARE)
        if len(lanes) >= MOST_LANES:
            self.close_unproven(now, MOST_LANES - MOST_LANES // _FREED_SHARE)
        if len(lanes) >= MOST_LANES:
            raise TooManyLanesError

    def open(self, lane_id: LaneId, now: float) -> None:
        """Open a lane, for example one that was saved over a restart."""
        settings = self._settings(lane_id)
        if settings is not None:
            self._controller.open_lane(now, settings)
            if any(fits_lane(pattern, lane_id) for pattern in self.paused):
                self._controller.lanes[lane_id].paused = True

    def open_lanes(self) -> list[LaneSettings]:
        """The lanes that are open, with what is known of their limits now."""
        found = map(self._settings, self._controller.lanes)
        return [settings for settings in found if settings is not None]

    def _settings(self, lane_id: LaneId) -> LaneSettings | None:
        model = lane_id.model
        upstream = self._upstreams.get(lane_id.upstream)
        if upstream is None:
            return None
        limits = upstream.limits
        for pattern, model_limits in upstream.model_limits.items():
            if fnmatchcase(model, pattern):
                limits = model_limits
                break
        reading = self.readings.get(lane_id.upstream)
        reported = None if reading is None else limits_of(model, reading.limits)
        return LaneSettings(
            lane_id,
            limits,
            reported or KnownLimits(),
            local=upstream.local,
            cached_counts=upstream.counts_cached_of(model),
            cache_ttl=upstream.cache_ttl_of(model, self._cache_ttl),
        )
