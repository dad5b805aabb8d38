"""What a measured peer has to tell: is it there, how to fetch it, how to start it.

Rules: (1) each comes from its public registry, into the cache, once; (2) what cannot be installed
is left out with a sentence that says why, and never stops the others.
Not here: the peers themselves (peers.py), starting them and asking them (subjects.py).
"""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache" / "bench"
INSTALL_SECONDS = 1_200
KEY = "sk-ant-api03-bench"


class MissingError(Exception):
    """It cannot be measured here; the text says why."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start one, and how to talk to it."""

    command: Sequence[str]
    env: dict[str, str] = field(default_factory=dict)
    key: str = KEY
    headers: tuple[tuple[str, str], ...] = ()
    # How long its start may take.
    seconds: float = 30.0


class Peer(ABC):
    """Something that stands between client and upstream."""

    name: str

    @abstractmethod
    def installed(self) -> bool:
        """Whether it is there already."""

    @abstractmethod
    def install(self) -> None:
        """Fetch it from its registry, or say in a `MissingError` why not."""

    @abstractmethod
    def version(self) -> str:
        """Which one is there."""

    @abstractmethod
    def launch(self, port: int, upstream: int, state: Path) -> Launch:
        """How to start it on this port, before that upstream, with its files in `state`."""


def run_installer(command: Sequence[str], where: Path) -> None:
    """Run one step of an installation; a `MissingError` says what went wrong."""
    where.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(
            command, cwd=where, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
    except FileNotFoundError:
        raise MissingError(f"{command[0]} is not on this machine") from None
    except subprocess.TimeoutExpired:
        raise MissingError(f"{command[0]} did not end in {INSTALL_SECONDS} s") from None
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise MissingError(f"{command[0]} failed: {lines[-1] if lines else done.returncode}")
