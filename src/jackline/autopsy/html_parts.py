"""Build HTML and SVG out of elements that escape whatever they are given.

Laws: (1) a plain string can never become markup; (2) no style attribute, so that the page's policy
can forbid them.
Not here: what the page shows (html_face.py, html_timeline.py).
"""

from __future__ import annotations

from html import escape
from typing import TypeAlias

_VOID = frozenset({"meta", "br", "link"})


class Markup(str):
    """Text that is already HTML; only `element` makes it."""

    __slots__ = ()


Child: TypeAlias = "str | Markup | None"


def element(name: str, /, *children: Child, **attributes: str | float | None) -> Markup:
    """One element; in attribute names `_` stands for `-`, a trailing one for nothing."""
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value), quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{shown}>")
    return Markup(f"<{name}{shown}>{together(*children)}</{name}>")


def together(*children: Child) -> Markup:
    """Several parts as one, each plain string escaped."""
    return Markup(
        "".join(
            child if isinstance(child, Markup) else escape(child, quote=False)
            for child in children
            if child is not None
        )
    )


def trusted(text: str) -> Markup:
    """Our own style sheet, which comes from the package and must not be escaped."""
    return Markup(text)
