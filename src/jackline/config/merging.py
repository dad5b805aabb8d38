"""Put the sources of settings over one another, the weakest first.

Laws: (1) a stronger source has its way key by key, except for upstreams: one that lists upstreams,
or names the address of one, replaces them all, since limits, proxy and credentials of one must not
stick to another; (2) what is wrong is gathered, never raised.
Not here: the sources (layers.py), their order (loading.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jackline.config.faults import Fault
from jackline.config.keys import Key, dotted
from jackline.config.layers import Layer


@dataclass(slots=True)
class Merged:
    """What holds so far, and where each value stands."""

    values: dict[Key, Any] = field(default_factory=dict)
    origins: dict[Key, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    # Where each upstream stands, and which of them have faults already.
    upstreams: list[str] = field(default_factory=list)
    wrong_upstreams: set[int] = field(default_factory=set)

    def take(self, layer: Layer) -> None:
        """Let a stronger source have its way."""
        self.faults += layer.faults
        if layer.replaces_upstreams:
            for key in [key for key in self.values if key[0] == "upstream"]:
                del self.values[key], self.origins[key]
            self.upstreams = []
            self.wrong_upstreams = set()
        self.upstreams += layer.upstreams[len(self.upstreams) :]
        self.wrong_upstreams |= layer.wrong_upstreams
        self.values |= layer.values
        self.origins |= layer.origins

    def fill(self, key: Key, value: object, origin: str = "default") -> None:
        """Say what holds where no source has said anything."""
        if key not in self.values:
            self.values[key] = value
            self.origins[key] = origin

    def fault(self, key: Key, what: str) -> None:
        """Note what is wrong with this key, at the place where it or its upstream stands."""
        self.faults.append(Fault(self.place(key), dotted(key), what))

    def place(self, key: Key) -> str:
        """Where this key stands, or else the upstream that lacks it."""
        if self.is_filled_in(key) and key[0] == "upstream" and isinstance(key[1], int):
            return self.upstreams[key[1]]
        return self.origins.get(key, "default")

    def is_filled_in(self, key: Key) -> bool:
        """Whether no source has said anything of this key."""
        origin = self.origins.get(key, "default")
        return origin == "default" or origin.startswith("preset ")

    def table(self, *under: str | int) -> dict[str, Any]:
        """The set values directly in this table, None left out."""
        return {
            str(key[-1]): value
            for key, value in self.values.items()
            if key[:-1] == under and value is not None
        }
