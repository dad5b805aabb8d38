"""The settings of Codex: one more provider, and the choice of it.

Rules: (1) pure: text in, text out; (2) our lines are between two marks and nowhere else, so that
removing them restores the earlier text, with a newline at its end; (3) the result is parsed again
and must hold exactly the intended settings, or nothing is changed.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from jackline.errors import UnreadableError, UsageError

_BEGIN = "# jackline begin: `jackline disconnect codex` removes these lines\n"
_END = "# jackline end\n"
_PROVIDER = "jackline"
_OURS = re.compile(rf"{re.escape(_BEGIN)}.*?{re.escape(_END)}", re.DOTALL)
_EARLIER_CHOICE = "# was: "
# The gateway waits and retries; the client's own retries only bridge its restart.
_RETRIES = 4


def settings_file(environ: Mapping[str, str]) -> Path:
    """The user's own file; Codex has none for projects."""
    folder = environ.get("CODEX_HOME") or os.path.expanduser("~/.codex")  # noqa: PTH111 -- works without a known user
    return Path(folder) / "config.toml"


def connected(text: str | None, path: Path, base_url: str, *, env_key: str | None) -> str:
    """The settings with our provider chosen.

    `env_key` is the variable with the key to send; without it Codex sends its own login.
    """
    plain = disconnected(text, path) or ""
    before = tomllib.loads(plain)
    if _PROVIDER in before.get("model_providers", {}):
        raise UsageError(
            f"{path} has a provider of its own that is called {_PROVIDER}",
            hint="give it another name, then run it again",
        )
    provider: dict[str, object] = {
        "name": "Jackline",
        "base_url": f"{base_url.rstrip('/')}/v1",
        "wire_api": "responses",
        "request_max_retries": _RETRIES,
        "stream_max_retries": _RETRIES,
        "stream_idle_timeout_ms": 24 * 3600 * 1000,
        **({"env_key": env_key} if env_key else {"requires_openai_auth": True}),
    }
    choice = f'{_BEGIN}model_provider = "{_PROVIDER}"\n'
    # Only keys before the first table are at the top level.
    table = re.search(r"^\s*\[", plain, re.MULTILINE)
    top = len(plain) if table is None else table.start()
    earlier = re.search(r"^model_provider\s*=.*\n", plain, re.MULTILINE)
    if earlier is not None and earlier.end() <= top:
        choice += f"{_EARLIER_CHOICE}{earlier[0]}{_END}"
        chosen = plain[: earlier.start()] + choice + plain[earlier.end() :]
    else:
        chosen = choice + _END + plain
    gap = "" if chosen.endswith("\n") else "\n"
    values = "".join(f"{name} = {json.dumps(value)}\n" for name, value in provider.items())
    made = f"{chosen}{gap}{_BEGIN}[model_providers.{_PROVIDER}]\n{values}{_END}"
    providers = {**before.get("model_providers", {}), _PROVIDER: provider}
    wanted = {**before, "model_provider": _PROVIDER, "model_providers": providers}
    try:
        is_wanted = tomllib.loads(made) == wanted
    except tomllib.TOMLDecodeError:
        is_wanted = False
    if not is_wanted:
        raise UsageError(
            f"{path} is written in a way that cannot be changed without touching the rest",
            hint=f'add a provider by hand with base_url = "{provider["base_url"]}"',
        )
    return made


def same_settings(after: str | None, earlier: str) -> bool:
    """Whether the texts differ in nothing but the newline that we add at the end."""
    return (after or "").rstrip("\n") == earlier.rstrip("\n")


def disconnected(text: str | None, path: Path) -> str | None:
    """The settings without our lines; None: nothing is left, and there was no file before."""
    if text is None:
        return None

    def earlier_choice(block: re.Match[str]) -> str:
        lines = [line for line in block[0].splitlines() if line.startswith(_EARLIER_CHOICE)]
        return "".join(f"{line.removeprefix(_EARLIER_CHOICE)}\n" for line in lines)

    plain = _OURS.sub(earlier_choice, text)
    try:
        tomllib.loads(plain)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UnreadableError(
            f"{path} is not the TOML that Codex reads ({error}), so it is left as it is",
            hint="correct the file, then run it again",
        ) from error
    return plain if plain.strip() or plain == text else None
