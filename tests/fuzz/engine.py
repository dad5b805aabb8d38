"""Find the targets, and mutate their seeds for Hypothesis.

Rules: a target is a module in `targets/`; what was found once stands in `tests/data/fuzz/TARGET/`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, cast

from hypothesis import strategies as st

from tests.fuzz import targets

FOUND = Path(__file__).parents[1] / "data" / "fuzz"
NAMES = sorted(found.name for found in pkgutil.iter_modules(targets.__path__))
_MOST_EDITS = 6
_LONGEST = 8_000


class Target(Protocol):
    """What a module in `targets/` has."""

    WORDS: tuple[bytes, ...]

    def seeds(self) -> Iterable[bytes]:
        """Inputs to begin with."""
        ...

    def check(self, data: bytes) -> None:
        """Raise when a promise of the reader breaks."""
        ...


def target(name: str) -> Target:
    """The target of this name; one that stands elsewhere has its whole name."""
    module = name if "." in name else f"tests.fuzz.targets.{name}"
    return cast("Target", importlib.import_module(module))


def inputs(name: str) -> list[bytes]:
    """The seeds of a target, and what was found in it once."""
    return [*target(name).seeds(), *(path.read_bytes() for path in found(name))]


def found(name: str) -> list[Path]:
    """Inputs that broke a promise once."""
    return sorted((FOUND / name).glob("*")) if (FOUND / name).is_dir() else []


def mutated(name: str) -> st.SearchStrategy[bytes]:
    """Seeds with parts taken out, doubled, moved and put in."""
    seeds = inputs(name)
    part = st.one_of(st.sampled_from(target(name).WORDS), st.binary(max_size=8))

    @st.composite
    def one(draw: st.DrawFn) -> bytes:
        data = bytearray(draw(st.sampled_from(seeds)))
        for _ in range(draw(st.integers(0, _MOST_EDITS))):
            begin = draw(st.integers(0, len(data)))
            end = min(len(data), begin + draw(st.integers(0, 40)))
            edit = draw(st.sampled_from(("put in", "replace", "double", "cut off", "splice")))
            if edit == "put in":
                data[begin:begin] = draw(part)
            elif edit == "replace":
                data[begin:end] = draw(part)
            elif edit == "double":
                data[begin:begin] = data[begin:end] * draw(st.integers(1, 4))
            elif edit == "cut off":
                del data[end:]
            else:
                data[end:] = draw(st.sampled_from(seeds))
            del data[_LONGEST:]
        return bytes(data)

    return one()
