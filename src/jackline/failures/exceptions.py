"""Describe an exception of ours by the names that tell what happened.

Laws: (1) the whole chain of causes is read, innermost last, loops cut; (2) nothing is imported to
recognise a class: names are enough, so any HTTP client will do.
Not here: exceptions of other programs, which arrive as text (rules/).
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

MAX_CHAIN = 20


def describe(exception: BaseException) -> str:
    """One line a rule can match: class names, error numbers by name, and messages."""
    return " · ".join(_describe_one(link) for link in chain(exception))


def chain(exception: BaseException) -> Iterator[BaseException]:
    """The exception, then what caused it, then what caused that; groups are opened."""
    seen: set[int] = set()
    pending = [exception]
    while pending and len(seen) < MAX_CHAIN:
        link = pending.pop(0)
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        if isinstance(link, BaseExceptionGroup):
            pending.extend(link.exceptions)
        cause = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
        if cause is not None:
            pending.append(cause)


def _describe_one(link: BaseException) -> str:
    names = [parent.__name__ for parent in type(link).__mro__[:-2] if parent is not Exception]
    number = getattr(link, "errno", None)
    symbol = errno.errorcode.get(number, "") if isinstance(number, int) else ""
    return f"{'/'.join(names[:4])}: {_message(link)} {f'({symbol})' if symbol else ''}".strip()


def _message(link: BaseException) -> str:
    try:
        return str(link)[:2000]
    except Exception:  # noqa: BLE001 -- a broken __str__ must not hide the failure it belongs to
        return "(no message)"
