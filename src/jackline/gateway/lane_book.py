"""Find the lane of a call: one per upstream, account and model, opened when first asked for.

Laws: (1) an account is known only by a salted fingerprint, from which no credential can be had;
(2) the same credential at another address is another account: a wall there says nothing of here;
(3) the number of lanes is bounded, whatever models clients ask for.
Not here: what lanes learn (lanes/).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

from jackline.dialects import account_of
from jackline.gateway.caller import Caller
from jackline.lanes import LaneController, LaneSettings
from jackline.providers.settings import Credential, UpstreamSettings

_MOST_LANES = 256
_OTHER_MODELS = "other-models"


class LaneBook:
    """The lanes of all upstreams."""

    def __init__(
        self, controller: LaneController, upstreams: Sequence[UpstreamSettings], salt: bytes
    ) -> None:
        self._controller = controller
        self._salt = salt[:64]
        self._names: dict[tuple[str, str, str], str] = {}
        self.use(upstreams)

    def use(self, upstreams: Sequence[UpstreamSettings]) -> None:
        """Name and limit the lanes that are opened from now on by these upstreams."""
        self._upstreams = {each.name: each for each in upstreams}
        self._names.clear()

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
        who = caller.credential
        if caller.bearer and who:
            # A login's token is renewed every few hours; the account behind it stays.
            account = account_of(body)
            return self.fingerprint(upstream, who if account is None else account.encode())
        known = caller.accounts.get(upstream.url)
        if known is None:
            known = caller.accounts[upstream.url] = self.fingerprint(upstream, who)
        return known

    def lane(self, upstream: UpstreamSettings, model: str, account: str, now: float) -> str:
        """The name of the lane, opened if need be."""
        key = (upstream.name, model, account)
        name = self._names.get(key)
        if name is None:
            if len(self._names) >= _MOST_LANES:
                model = _OTHER_MODELS
            name = f"{upstream.name}/{model}#{account}"
            self._names[key] = name
            self.open(name, now)
        return name

    def open(self, name: str, now: float) -> None:
        """Open a lane by its name, as found in what was remembered over a restart."""
        given = self._given(name)
        if given is not None:
            self._controller.open_lane(now, given)

    def open_lanes(self) -> list[LaneSettings]:
        """The lanes that are open, with what the upstreams in use say of their limits."""
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
        return LaneSettings(name, account, limits)


@lru_cache(maxsize=1024)
def shown(name: str) -> str:
    """A lane's name for people: without the account's fingerprint."""
    return name.partition("#")[0]
