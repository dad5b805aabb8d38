"""Apply a changed configuration while the service runs.

Rules: (1) no call is dropped for it; (2) a configuration that cannot be applied changes nothing:
the old one stays, and that is reported; (3) only this file changes a running service's
configuration.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass

from jackline.calls import CallManager
from jackline.clock import Clock
from jackline.config import Config
from jackline.config.watcher import ConfigWatcher, Reloaded
from jackline.errors import UsageError
from jackline.events import Announce, ServiceNoted
from jackline.gateway.call_intake import CallIntake
from jackline.gateway.lane_registry import LaneRegistry
from jackline.gateway.listener import Listener
from jackline.gateway.status_pages import StatusPages
from jackline.gateway.vendor_limits import VendorLimits
from jackline.providers.provided_upstream import ProvidedUpstream, provider_for
from jackline.providers.settings import UpstreamSettings
from jackline.upstream.bounded_answers import AnswerLimits

_log = logging.getLogger("jackline")


def status_pages(upstreams: Sequence[UpstreamSettings]) -> dict[str, str]:
    """The vendors' status pages, by upstream."""
    return {each.name: each.status_page for each in upstreams if each.status_page}


def foreign_upstreams(upstreams: Sequence[UpstreamSettings]) -> frozenset[str]:
    """The upstreams that must be translated for."""
    return frozenset(each.name for each in upstreams if not each.kind.facts.serves_claude)


def limit_lanes(book: LaneRegistry, carrier: CallManager) -> None:
    """Let open lanes follow what is known of their limits now."""
    for lane in book.open_lanes():
        carrier.limit_lane(lane)


@dataclass(frozen=True, slots=True)
class ReloadableParts:
    """The parts of a service that follow its configuration."""

    desk: CallIntake
    listener: Listener
    upstream: ProvidedUpstream
    book: LaneRegistry
    pages: StatusPages
    limits: VendorLimits
    carrier: CallManager

    def use(self, old: Config, config: Config) -> None:
        """Follow the new configuration; raises UsageError before anything has changed."""
        before, after = old.gateway, config.gateway
        changed = [each for each in after.upstreams if each not in before.upstreams]
        made = {each.name: provider_for(each, os.environ) for each in changed}
        self.desk.use(after)
        self.listener.limits = after.limits
        self.upstream.limits = AnswerLimits(after.limits.answer, after.limits.answer_time)
        self.upstream.held.most = after.limits.held_answers
        if after.upstreams == before.upstreams and after.cache.ttl == before.cache.ttl:
            return
        for name, provider in made.items():
            self.upstream.use(name, provider)
        self.upstream.foreign = foreign_upstreams(after.upstreams)
        self.book.use(after.upstreams, after.cache.ttl)
        self.pages.use(status_pages(after.upstreams))
        self.limits.use(after.upstreams)
        limit_lanes(self.book, self.carrier)
        # Calls that wait know only the upstreams of their own time.
        self.desk.choose_again()


class ConfigReloader:
    """Watches one service's configuration; `watch` must run for as long as it does."""

    def __init__(
        self,
        config: Config,
        reload: Callable[[], Config],
        parts: ReloadableParts,
        adopt: Callable[[Config], None],
        notes: MutableMapping[str, str],
        announce: Announce,
        clock: Clock,
    ) -> None:
        """`adopt` is called with the configuration that holds from now on."""
        self._config = config
        self._reload = reload
        self._parts = parts
        self._adopt = adopt
        self._notes = notes
        self._announce = announce
        self._clock = clock
        # Made now: what is written from here on is a change.
        self._watcher = ConfigWatcher(
            config, self._read_again, changed=self._changed, failed=self._keep_old, clock=clock
        )

    async def watch(self) -> None:
        """Take up what changes, until cancelled."""
        await self._watcher.run()

    def _read_again(self) -> Config:
        """The configuration as it is now; called in a thread of its own."""
        config = self._reload()
        # A fault that was cured by going back to what holds shows in no change.
        self._notes.pop("configuration", None)
        return config

    def _changed(self, reloaded: Reloaded) -> None:
        try:
            self._parts.use(self._config, reloaded.config)
        except UsageError as error:
            self._keep_old(error)
            return
        for warning in reloaded.config.warnings:
            if warning not in self._config.warnings:
                _log.warning("%s", warning)
        self._config = reloaded.config
        self._adopt(reloaded.config)
        _log.setLevel(reloaded.config.log_level.upper())
        words = str(reloaded)
        self._notes["configuration"] = f"configuration read: {words}"
        _log.info("configuration read: %s", words)
        self._announce(ServiceNoted(self._clock.wall(), "configured", words))

    def _keep_old(self, error: UsageError) -> None:
        self._notes["configuration"] = f"the old configuration stays: {error.message}"
        _log.error("the old configuration stays: %s", error.message)
        self._announce(ServiceNoted(self._clock.wall(), "misconfigured", error.message))
