"""The settings of Codex: one more provider, and the choice of it.

Rules: (1) pure: text in, text out; (2) our lines are between two marks and nowhere else, so that
removing them restores the earlier text, with a newline at its end; (3) the result is parsed again
and must say exactly what was intended, or nothing is changed.
Not here: writing files (settings_change.py), Codex as an agent (agents/codex/).
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jackline.errors import UnreadableError, UsageError

BEGIN = "# jackline begin: `jackline disconnect codex` removes these lines"
END = "# jackline end"
PROVIDER = "jackline"
_MARKED = re.compile(rf"{re.escape(BEGIN)}\n.*?{re.escape(END)}\n", re.DOTALL)
_OLD_CHOICE = re.compile(r"^model_provider\s*=.*\n", re.MULTILINE)
_WAS = "# was: "
_DAY_MS = 24 * 3600 * 1000
# Waits and retries are the gateway's; these of the client's own bridge its restart.
_RETRIES = 4


def settings_file(environ: Mapping[str, str], home: Path) -> Path:
    """The user's own file; Codex has none for projects."""
    folder = environ.get("CODEX_HOME")
    return (Path(folder) if folder else home / ".codex") / "config.toml"


def connected(text: str | None, path: Path, base_url: str, *, env_key: str | None) -> str:
    """The settings with our provider chosen; with `env_key`, that variable holds the key to send,
    else the login that Codex has."""
    plain = disconnected(text, path) or ""
    before = _parsed(plain, path)
    if PROVIDER in before.get("model_providers", {}):
        raise UsageError(
            f"{path} has a provider of its own that is called {PROVIDER}",
            next="give it another name, then run it again",
        )
    provider: dict[str, object] = {
        "name": "Jackline",
        "base_url": f"{base_url.rstrip('/')}/v1",
        "wire_api": "responses",
        "request_max_retries": _RETRIES,
        "stream_max_retries": _RETRIES,
        "stream_idle_timeout_ms": _DAY_MS,
        **({"env_key": env_key} if env_key else {"requires_openai_auth": True}),
    }
    choice = [f'model_provider = "{PROVIDER}"']
    head = _OLD_CHOICE.search(plain)
    top = _top(plain)
    if head is not None and head.end() <= top:
        choice.append(_WAS + head[0].rstrip("\n"))
        chosen = plain[: head.start()] + _marked(choice) + plain[head.end() :]
    else:
        chosen = _marked(choice) + plain
    gap = "" if chosen.endswith("\n") else "\n"
    lines = [f"[model_providers.{PROVIDER}]"]
    lines += [f"{name} = {json.dumps(value)}" for name, value in provider.items()]
    made = f"{chosen}{gap}{_marked(lines)}"
    providers = {**before.get("model_providers", {}), PROVIDER: provider}
    wanted = {**before, "model_provider": PROVIDER, "model_providers": providers}
    try:
        is_meant = tomllib.loads(made) == wanted
    except tomllib.TOMLDecodeError:
        is_meant = False
    if not is_meant:
        raise UsageError(
            f"{path} is written in a way that cannot be changed without touching the rest",
            next=f'add a provider by hand with base_url = "{provider["base_url"]}"',
        )
    return made


def disconnected(text: str | None, path: Path) -> str | None:
    """The settings without our lines; None: nothing is left, and there was no file before."""
    if text is None:
        return None

    def was(block: re.Match[str]) -> str:
        lines = [line for line in block[0].splitlines() if line.startswith(_WAS)]
        return "".join(f"{line.removeprefix(_WAS)}\n" for line in lines)

    plain = _MARKED.sub(was, text)
    _parsed(plain, path)
    return plain if plain.strip() or plain == text else None


def _marked(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in (BEGIN, *lines, END))


def _top(text: str) -> int:
    """Where the first table begins: only before it do keys stand at the top."""
    table = re.search(r"^\s*\[", text, re.MULTILINE)
    return len(text) if table is None else table.start()


def _parsed(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UnreadableError(
            f"{path} is not the TOML that Codex reads ({error}), so it is left as it is",
            next="mend the file, then run it again",
        ) from error
