"""A provider on a loopback port for tests, with one line per fault.

Rules: (1) faults begin now and last `seconds`; each line returns a handle for `heal`; (2) the
ledger is a copy: what a test has read does not change later.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace

from jackline.simulator.faults import Effect, Fault, RecoverySettings, ResetAnnouncement
from jackline.simulator.ledger import RequestLedger
from jackline.simulator.limits import BucketSettings, WindowClaim
from jackline.simulator.provider import ProviderSettings
from jackline.simulator.reply_script import Reply, ReplyScript, Rule
from jackline.simulator.server import ServerThread
from jackline.simulator.time_model import AT_ONCE

DEFAULT_SETTINGS = ProviderSettings(service=AT_ONCE)


class SimulatedProvider(ServerThread):
    """A provider with scripted replies and faults; `with` opens and closes it."""

    def __init__(
        self,
        settings: ProviderSettings = DEFAULT_SETTINGS,
        script: ReplyScript | None = None,
        *,
        seed: int = 0,
        speed: float = 1.0,
    ) -> None:
        super().__init__(settings, script, seed=seed, speed=speed)

    @property
    def ledger(self) -> RequestLedger:
        """Every request so far and its outcome."""
        return self.order(lambda playing: copy.deepcopy(playing.provider.ledger))

    def says(self, *rules: Rule | Reply) -> None:
        """Answer by these rules from now on; the first that matches answers."""
        script = tuple(one if isinstance(one, Rule) else Rule(one) for one in rules)
        self.order(lambda playing: setattr(playing, "script", ReplyScript(script)))

    def limits(self, *buckets: BucketSettings) -> None:
        """Restart with these limits per minute."""
        self.order(lambda p: p.restart(replace(p.settings, buckets=buckets)))

    def demand_credential(self) -> None:
        """Restart, and refuse requests without a credential; any credential will do."""
        self.order(lambda p: p.restart(replace(p.settings, demands_credential=True)))

    def reset_all(self) -> None:
        """Restart: an empty ledger, no faults but the settings' own."""
        self.order(lambda playing: playing.restart())

    def heal(self, handle: int | None = None) -> None:
        """End one fault, or all."""
        self.order(lambda playing: playing.clear_faults(handle))

    # --- one line per fault ---------------------------------------------------------

    def strike(self, fault: Fault) -> int:
        """Begin any fault, its window counted from now."""
        return self.order(lambda playing: playing.add_fault(fault))

    def throttle(
        self,
        seconds: float = math.inf,
        *,
        share: float = 1.0,
        retry_after: float | None = None,
        model: str = "",
    ) -> int:
        """429 that is not the caller's usage limit."""
        fault = Fault(Effect.THROTTLED, until=seconds, share=share, model=model)
        return self.strike(replace(fault, retry_after=retry_after))

    def overload(self, seconds: float = math.inf, *, share: float = 1.0, model: str = "") -> int:
        """529."""
        return self.strike(Fault(Effect.OVERLOADED, until=seconds, share=share, model=model))

    def outage(
        self,
        seconds: float = math.inf,
        *,
        effect: Effect = Effect.SERVER_ERROR,
        share: float = 1.0,
        model: str = "",
        kills_in_flight: float = 0.7,
        recovery: RecoverySettings | None = None,
    ) -> int:
        """5xx, as the API, an HTML page or Envoy has it; open streams break too."""
        fault = Fault(effect, share=share, model=model, recovery=recovery)
        return self.strike(replace(fault, until=seconds, kills_in_flight=kills_in_flight))

    def quota_wall(
        self,
        resets_in: float = 7200.0,
        *,
        announced: ResetAnnouncement = "headers",
        claim: WindowClaim = WindowClaim.FIVE_HOUR,
        model: str = "",
    ) -> int:
        """The account's window is used up; the reset is in the headers, in the text, or nowhere."""
        fault = Fault(Effect.QUOTA_WALL, until=resets_in, reset_announced=announced, claim=claim)
        return self.strike(replace(fault, model=model))

    def hang(self, seconds: float = math.inf, *, share: float = 1.0, model: str = "") -> int:
        """No headers ever come, and open streams freeze."""
        fault = Fault(Effect.HANG, until=seconds, share=share, model=model)
        return self.strike(replace(fault, freezes_in_flight=share >= 1.0))

    def silence(
        self, seconds: float = math.inf, *, at: float | None = None, share: float = 1.0
    ) -> int:
        """Streams begin and stop sending at a share of their length."""
        return self.strike(Fault(Effect.SILENCE, until=seconds, at_share=at, share=share))

    def cut(
        self,
        seconds: float = math.inf,
        *,
        at: float | None = None,
        at_byte: int | None = None,
        share: float = 1.0,
    ) -> int:
        """Streams are reset at a share of their length, or after so many bytes of the body."""
        fault = Fault(Effect.CUT, until=seconds, at_share=at, at_byte=at_byte, share=share)
        return self.strike(fault)

    def clean_end(
        self, seconds: float = math.inf, *, at: float | None = None, share: float = 1.0
    ) -> int:
        """Streams end cleanly, but without the events that close them."""
        return self.strike(Fault(Effect.CLEAN_END, until=seconds, at_share=at, share=share))

    def error_event(
        self,
        seconds: float = math.inf,
        *,
        at: float | None = None,
        share: float = 1.0,
        status: int | None = None,
    ) -> int:
        """Streams end with an error event: an overload, or the error of `status` 429 or 500."""
        fault = Fault(Effect.ERROR_EVENT, until=seconds, at_share=at, share=share, status=status)
        return self.strike(fault)

    def captive_portal(self, seconds: float = math.inf) -> int:
        """200 with an HTML page."""
        return self.strike(Fault(Effect.CAPTIVE_PORTAL, until=seconds))

    def refuse(self, seconds: float = math.inf) -> int:
        """Nobody listens on the port."""
        return self.strike(Fault(Effect.REFUSED, until=seconds))

    def reset(self, seconds: float = math.inf, *, share: float = 1.0) -> int:
        """Connections are reset before the first byte."""
        return self.strike(Fault(Effect.RESET, until=seconds, share=share))

    def late(self, seconds: float = math.inf, *, delay: float = 10.0) -> int:
        """Answers begin later by `delay` seconds, and are healthy."""
        return self.strike(Fault(Effect.LATE, until=seconds, delay=delay))

    def slow_drip(self, seconds: float = math.inf, *, slowness: float = 20.0) -> int:
        """Answers come so many times slower."""
        return self.strike(Fault(Effect.SLOW_DRIP, until=seconds, slowness=slowness))
