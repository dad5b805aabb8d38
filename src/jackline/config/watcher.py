"""Notice changed configuration files while running, and report the new configuration.

Rules: (1) a changed file is read once it has not changed for a whole interval, so that a
half-written or emptied one is never used; but who keeps changing a project's file holds up no
change of the user's own, nor what the user agreed to or revoked: a half-written file of a project
is ignored by its reader; (2) on a fault the old configuration stays, and the fault
is reported once; (3) the address and the state folder stay as they were at the start: a change
there is reported as needing a restart, and not applied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

from jackline.clock import Clock
from jackline.config import Config
from jackline.config.declaration import SETTINGS
from jackline.config.keys import dotted
from jackline.errors import BadConfigError

LOOK_EVERY = 1.0
# A fault may be cured outside the files (a variable's file, a missing token): tried again then.
_LOOKS_BETWEEN_TRIES = 10

_FileMark: TypeAlias = tuple[int, int, int] | None
_FIXED = {dotted(key) for key, one in SETTINGS.items() if one.setting.needs_restart}


@dataclass(frozen=True, slots=True)
class Reloaded:
    """A new configuration, the keys that differ, and those of them that need a restart."""

    config: Config
    changed: tuple[str, ...]
    needs_restart: tuple[str, ...]

    def __str__(self) -> str:
        applied = [key for key in self.changed if key not in self.needs_restart]
        parts = [f"changed: {', '.join(applied)}"] if applied else []
        if self.needs_restart:
            parts.append(f"needs a restart: {', '.join(self.needs_restart)}")
        return "; ".join(parts) or "nothing changed"


class ConfigWatcher:
    """Looks at the files of one configuration, and reloads it when they change."""

    def __init__(
        self,
        config: Config,
        reload: Callable[[], Config],
        *,
        changed: Callable[[Reloaded], None],
        failed: Callable[[BadConfigError], None],
        clock: Clock,
        every: float = LOOK_EVERY,
    ) -> None:
        self._config = config
        self._reload = reload
        self._on_change = changed
        self._on_failure = failed
        self._clock = clock
        self._every = every
        self._loaded = self._seen = _Fingerprint.of(config)
        self._reported = ""
        self._looks_since_fault: int | None = None

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self._config

    async def run(self) -> None:
        """Look at the files again and again, until cancelled."""
        while True:
            await self._clock.sleep(self._every)
            await self.look()

    async def look(self) -> None:
        """Look once; reload if the files changed and keep still."""
        before, loaded = self._seen, self._loaded
        seen = self._seen = _Fingerprint.of(self._config)
        is_settled = seen.own == before.own and (
            seen.own != loaded.own or before.projects == seen.projects != loaded.projects
        )
        if not is_settled and self._looks_since_fault is not None:
            self._looks_since_fault += 1
        if is_settled or (self._looks_since_fault or 0) >= _LOOKS_BETWEEN_TRIES:
            await self._load()

    async def _load(self) -> None:
        # Before reading: a change during it is then a change since it.
        self._loaded = self._seen
        try:
            # In a thread, since a secret's command may take its time.
            new = await asyncio.to_thread(self._reload)
        except BadConfigError as error:
            self._keep_old(error)
            return
        except OSError as error:  # such as a working folder that is gone
            self._keep_old(BadConfigError(f"the configuration cannot be read: {error.strerror}"))
            return
        except Exception as error:  # noqa: BLE001 -- the border of one reload: later ones go on
            # Without it, the user's next change would have no effect, without a word.
            self._keep_old(BadConfigError(f"a bug in Jackline: {type(error).__name__}"))
            return
        self._looks_since_fault = None
        self._reported = ""
        self._take(new)

    def _keep_old(self, error: BadConfigError) -> None:
        self._looks_since_fault = 0
        if error.message != self._reported:
            self._reported = error.message
            self._on_failure(error)

    def _take(self, new: Config) -> None:
        old = self._config
        # A reference may lead to another secret now, though it is written as before.
        keys = {
            key
            for key in old.shown.keys() | new.shown.keys()
            if old.shown.get(key) != new.shown.get(key)
        }
        if old.gateway.listen.token != new.gateway.listen.token:
            keys.add(("listen", "token"))
        pairs = zip(old.gateway.upstreams, new.gateway.upstreams, strict=False)
        for place, (was, now) in enumerate(pairs):
            if was.proxy != now.proxy:
                keys.add(("upstream", place, "proxy"))
            if was.secret != now.secret:
                keys.add(("upstream", place, "credential"))
            if was.headers != now.headers:
                keys.add(("upstream", place, "headers"))
        differing = tuple(sorted(dotted(key) for key in keys))
        needs_restart = tuple(key for key in differing if key in _FIXED)
        listen = replace(
            new.gateway.listen, host=old.gateway.listen.host, port=old.gateway.listen.port
        )
        self._config = replace(
            new, gateway=replace(new.gateway, listen=listen), state_dir=old.state_dir
        )
        if (new.watched, new.watched_of_projects) != (old.watched, old.watched_of_projects):
            self._loaded = self._seen = _Fingerprint.of(new)
        if differing:
            self._on_change(Reloaded(self._config, differing, needs_restart))


class _Fingerprint(NamedTuple):
    """What the files of a configuration looked like at one moment."""

    own: tuple[_FileMark, ...]
    projects: tuple[_FileMark, ...]

    @classmethod
    def of(cls, config: Config) -> _Fingerprint:
        own = tuple(map(_mark_of, config.watched))
        return cls(own, tuple(map(_mark_of, config.watched_of_projects)))


def _mark_of(path: Path) -> _FileMark:
    try:
        state = path.stat()
    except OSError:
        return None  # not there, or not for us: either way it says nothing now
    return state.st_mtime_ns, state.st_size, state.st_ino
