"""Find the lane of a call: one per upstream, account and model, opened when first asked for.

Laws: (1) an account is known only by a salted fingerprint, from which no credential can be had;
(2) the same credential at another address is another account: a wall there says nothing of here;
(3) two models, or two accounts, never share a lane; (4) a credential is an account of its own, but
for logins that the vendor accepts and says to be of one account; (5) the number of lanes is
bounded: idle ones that know nothing that counts make room, then closed ones that nobody was ever
answered on, and beyond that none is opened.
Not here: what lanes learn (lanes/), which logins are of one account (login_accounts.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

from jackline.gateway.caller import Caller
from jackline.gateway.known_clients import KnownClients
from jackline.gateway.login_accounts import LoginAccounts
from jackline.gateway.vendor_limits import Reading
from jackline.lanes import CacheTtl, KnownLimits, LaneController, LaneSettings
from jackline.providers.hour_cache import cache_ttl_of
from jackline.providers.rate_limits_api import limits_of
from jackline.providers.settings import Credential, UpstreamSettings

# Above the first number idle lanes make room; so many that are in use are the most there can be.
MOST_IDLE = 256
MOST_LANES = 2048
# So many are closed at once: finding them costs something.
_FREED_SHARE = 8


class TooManyLanesError(Exception):
    """As many lanes are in use as there can be."""


def _close_none(_now: float, _most: int) -> None:
    """Who has no calls has no lanes to close."""


class LaneBook:
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
        self.readings: Mapping[str, Reading] = {}
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

    def account(self, upstream: UpstreamSettings, caller: Caller, body: bytes | bytearray) -> str:
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
            cache_ttl=cache_ttl_of(upstream, model, self._cache_ttl),
        )


@lru_cache(maxsize=1024)
def shown(name: str) -> str:
    """A lane's name for people: without the account's fingerprint."""
    return name.partition("#")[0]
