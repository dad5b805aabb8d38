"""Name every setting: by its dotted key, its environment variable, its flag.

Laws: (1) one dotted key per setting, the same in files, errors, `config show` and docs; (2) any
setting that is not inside a table of free names has JACKLINE_<SECTION>_<KEY>.
Not here: what the settings mean and may be (document.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import TypeAlias

Key: TypeAlias = tuple[str, ...]

PREFIX = "JACKLINE_"
# Variables and flags that are short because they are typed daily.
SHORT_VARIABLES: dict[str, Key] = {
    "JACKLINE_HOST": ("listen", "host"),
    "JACKLINE_PORT": ("listen", "port"),
    "JACKLINE_UPSTREAM": ("upstream", "url"),
    "JACKLINE_STATE": ("state",),
}
SHORT_FLAGS: dict[str, Key] = {
    "host": ("listen", "host"),
    "port": ("listen", "port"),
    "upstream": ("upstream", "url"),
    "state": ("state",),
    "stream": ("stream",),
    "afk": ("hold", "until_reset"),
    "log_level": ("log", "level"),
}
# Names the file to read, so it is no setting itself.
FILE_VARIABLE = "JACKLINE_CONFIG"
FILE_FLAG = "config"

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def dotted(key: Iterable[str | int]) -> str:
    """`upstream.model_limits."claude-opus-*".parallel`; places in a list are left out."""
    return ".".join(
        part if _BARE.fullmatch(part) else quoted(part) for part in key if isinstance(part, str)
    )


def undotted(text: str) -> Key:
    """The key that `dotted` wrote."""
    parts = re.findall(r'"(?:[^"\\]|\\.)*"|[^."]+', text)
    return tuple(json.loads(part) if part.startswith('"') else part for part in parts)


def quoted(text: str) -> str:
    """The text as TOML's basic string, which is JSON's but for one character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def variable_of(key: Key) -> str:
    """The environment variable that sets this key."""
    return PREFIX + "_".join(key).upper()


def flag_text(name: str) -> str:
    """How the flag of this name is typed."""
    return f"--{name.replace('_', '-')}"
