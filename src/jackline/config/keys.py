"""Name every setting: by its dotted key, its environment variable, its flag.

Laws: (1) one dotted key per setting, the same in files, errors, `config show` and docs; (2) any
setting that is not inside a table of free names has JACKLINE_<SECTION>_<KEY>; (3) variables and
flags speak of the first upstream, and so does a key that does not say of which one.
Not here: what the settings mean and may be (document.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import TypeAlias

# Names, and places in the list of upstreams.
Key: TypeAlias = tuple[str | int, ...]

PREFIX = "JACKLINE_"
# Variables and flags that are short because they are typed daily.
SHORT_VARIABLES: dict[str, tuple[str, ...]] = {
    "JACKLINE_HOST": ("listen", "host"),
    "JACKLINE_PORT": ("listen", "port"),
    "JACKLINE_UPSTREAM": ("upstream", "url"),
    "JACKLINE_STATE": ("state",),
}
SHORT_FLAGS: dict[str, tuple[str, ...]] = {
    "host": ("listen", "host"),
    "port": ("listen", "port"),
    "upstream": ("upstream", "url"),
    "state": ("state",),
    "stream": ("stream",),
    "afk": ("hold", "until_reset"),
    "read_only": ("listen", "read_only"),
    "log_level": ("log", "level"),
}
# Names the file to read, so it is no setting itself.
FILE_VARIABLE = "JACKLINE_CONFIG"
FILE_FLAG = "config"

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def dotted(key: Iterable[str | int]) -> str:
    """`upstream.model_limits."claude-*".parallel`, and `upstream[1].…` for the second upstream."""
    text = ""
    for part in key:
        if isinstance(part, str):
            text += f"{'.' if text else ''}{part if _BARE.fullmatch(part) else quoted(part)}"
        elif part:
            text += f"[{part}]"
    return text


def plain(key: Iterable[str | int]) -> tuple[str, ...]:
    """The key as it is for every item of a list."""
    return tuple(part for part in key if isinstance(part, str))


def undotted(text: str) -> tuple[str, ...]:
    """The key that `dotted` wrote of one without places."""
    parts = re.findall(r'"(?:[^"\\]|\\.)*"|[^."]+', text)
    return tuple(json.loads(part) if part.startswith('"') else part for part in parts)


def quoted(text: str) -> str:
    """The text as TOML's basic string, with escapes for what could steer a terminal.

    It is JSON's, too; beyond U+FFFF the two have different escapes, and nothing steers.
    """
    return "".join(
        letter if letter.isprintable() or letter > "\uffff" else f"\\u{ord(letter):04x}"
        for letter in json.dumps(text, ensure_ascii=False)
    )


def variable_of(key: Iterable[str]) -> str:
    """The environment variable that sets this key."""
    return PREFIX + "_".join(key).upper()


def flag_text(name: str) -> str:
    """How the flag of this name is typed."""
    return f"--{name.replace('_', '-')}"
