"""Save runs and the results of their calls: the interface `RunStore`, and SQLite behind it.

    open_run_store(run_store_url(state_folder))
    open_run_store("sqlite:///:memory:")

Rules: (1) a store is named by its URL, and only this module knows which schemes there are, and
which URL is a state folder's own; (2) opening makes no file and no connection: that happens with
the first record.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from jackline.clock import SystemClock
from jackline.errors import BadArgumentError
from jackline.flows.store.run_store import LOCK_SECONDS, RunStore

_FORMS = {"sqlite": "sqlite:///PATH or sqlite:///:memory:"}


def open_run_store(
    url: str,
    *,
    wall: Callable[[], float] = SystemClock.wall,
    lock_seconds: float = LOCK_SECONDS,
    patience: float = 0.0,
) -> RunStore:
    """The store at this URL; `close` it.

    `wall` is the time in seconds since the epoch. One try waits for another program's lock for
    `lock_seconds`, and all together wait for `patience`.
    """
    # Imported when it is needed: commands that open no store start without it.
    from jackline.flows.store.sqlite import SqliteRunStore  # noqa: PLC0415

    return SqliteRunStore(_file(url), wall=wall, lock_seconds=lock_seconds, patience=patience)


def run_store_url(state_folder: Path) -> str:
    """The URL of the store in a state folder."""
    # state_dir.py checks that this file is private, too, before a service starts.
    return f"sqlite:///{quote((state_folder.absolute() / 'flows.db').as_posix(), safe='/:')}"


def run_store_exists(url: str) -> bool:
    """Whether something was ever saved there; looking makes nothing."""
    path = _file(url)
    return path is not None and path.exists()


def _file(url: str) -> Path | None:
    """The file that the URL of a SQLite store names; None for memory."""
    parts = urlsplit(url)
    if parts.scheme not in _FORMS or parts.netloc or not parts.path[1:] or parts.query:
        # Not the URL itself: one of a database server has a password.
        raise BadArgumentError(
            f"No store of runs has a URL like this (scheme {parts.scheme or 'missing'!r}).",
            hint=f"Write one of these forms: {'; '.join(_FORMS.values())}.",
        )
    name = unquote(parts.path[1:])
    return None if name == ":memory:" else Path(name)
