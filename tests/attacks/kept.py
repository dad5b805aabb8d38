"""Count what an object keeps: the sizes of all containers that can be reached from it.

Rules: only objects of this package are looked into, and containers that they hold.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

_CONTAINERS = (dict, list, set, frozenset, tuple, deque)
_SMALL = 64


def sizes(root: object) -> dict[str, int]:
    """The length of every container of some size, by how it is reached."""
    found: dict[str, int] = {}
    seen: set[int] = set()
    todo: list[tuple[str, object]] = [("", root)]
    while todo:
        path, each = todo.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, _CONTAINERS):
            if len(each) > _SMALL:
                found[path] = max(len(each), found.get(path, 0))
            inside = each.values() if isinstance(each, Mapping) else each
            todo += [(f"{path}[]", one) for one in list(inside)]
            if isinstance(each, Mapping):
                todo += [(f"{path}[key]", one) for one in list(each) if isinstance(one, tuple)]
        elif isinstance(each, bytearray | bytes | str):
            if len(each) > 1024 * 1024:
                found[path] = max(len(each), found.get(path, 0))
        elif type(each).__module__.startswith("jackline"):
            todo += [(f"{path}.{name}", value) for name, value in _attributes(each)]
        elif hasattr(each, "__self__"):
            todo.append((f"{path}()", each.__self__))
    return found


def _attributes(each: object) -> Iterator[tuple[str, object]]:
    yield from getattr(each, "__dict__", {}).items()
    for kind in type(each).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            full = f"_{kind.__name__.lstrip('_')}{name}" if name.startswith("__") else name
            if hasattr(each, full):
                yield name, getattr(each, full)
