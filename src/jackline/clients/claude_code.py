"""The settings of Claude Code: variables, status line, and the signed record of our changes.

Rules: (1) the new content is pure: text in, text out; order and indentation stay; (2) a file that
is no JSON object, or whose `env` is none, is not touched; where we write, null and an empty `env`
count as nothing; (3) the record holds what we wrote and the value before it, is private to this
user, and is signed with the installation's key over the client, the settings file and all values;
(4) a record that this installation has not signed is ignored: nothing is restored by guess.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from jackline.errors import UnreadableError, UnsafeFileError, UsageError
from jackline.local_address import HOSTS
from jackline.private_files import (
    NotPrivateError,
    installation_key,
    is_signature,
    make_private_folder,
    read_private,
    signature,
    write_private,
)

Written: TypeAlias = dict[str, list[object]]
"""By dotted key: the value before (None: no value), and the value that was written."""

# Without it the client draws the line only after an answer, and a session that waits has none.
_REFRESH_SECONDS = 10
_LEFT_BY_PLUGINS = ("enabledPlugins", "extraKnownMarketplaces")
_INDENT = re.compile(r"\{\s*\n([ \t]+)\"")
# Part of every signature: a change would invalidate the records of all installations.
_PURPOSE = "what stood in a client's settings before connect"
_LARGEST_RECORD = 8 << 20


def settings_file(environ: Mapping[str, str], project: Path | None = None) -> Path:
    """The user's own file, or the project's personal one, which is not shared with others."""
    if project is not None:
        return project / ".claude" / "settings.local.json"
    folder = environ.get("CLAUDE_CONFIG_DIR") or os.path.expanduser("~/.claude")  # noqa: PTH111 -- works without a known user
    return Path(folder) / "settings.json"


def same_settings(after: str | None, earlier: str) -> bool:
    """Whether both texts hold the same; no file, and an empty one, hold nothing.

    What the client itself leaves behind of a plugin that is gone counts as nothing.
    """
    try:
        found = [json.loads(each) if each and each.strip() else {} for each in (after, earlier)]
    except (ValueError, RecursionError):
        return False
    for each in found:
        if isinstance(each, dict):
            for name in _LEFT_BY_PLUGINS:
                if each.get(name) == {}:
                    del each[name]
    return bool(found[0] == found[1])


class ClaudeSettings:
    """One settings file as it was read (`text` is None: there is no file)."""

    def __init__(self, path: Path, text: str | None) -> None:
        """UnreadableError when the text is not what Claude Code reads."""
        self._text = text
        problem = ""
        settings: object = {}
        if text is not None and text.strip():
            try:
                settings = json.loads(text)
            except ValueError as error:
                problem = str(error)
            except RecursionError:
                problem = "it is nested too deep"
        if not isinstance(settings, dict):
            problem = "it is no JSON object"
        elif not isinstance(settings.get("env"), dict | None):
            problem = "its env is no JSON object"
        if problem or not isinstance(settings, dict):
            raise UnreadableError(
                f"{path} is not the JSON that Claude Code reads ({problem}), so it is left as it"
                " is",
                hint="correct the file; to use the gateway without it: jackline env",
            )
        self._settings: dict[str, object] = settings

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that the client gets from this file."""
        found = self._settings.get("env")
        return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}

    def connected(self, variables: Mapping[str, str], status_line: str) -> tuple[str, Written]:
        """The text with these variables and our status line, and the values that it replaces.

        A status line of the user's own stays.
        """
        settings = dict(self._settings)
        written: Written = {}
        found = settings.get("env")
        env = dict(found) if isinstance(found, dict) else {}
        for name, value in variables.items():
            if env.get(name) != value:
                written[f"env.{name}"] = [env.get(name), value]
                env[name] = value
        if env:
            settings["env"] = env
        line = {"type": "command", "command": status_line, "refreshInterval": _REFRESH_SECONDS}
        earlier = settings.get("statusLine")
        is_ours = isinstance(earlier, dict) and earlier.get("command") == status_line
        if earlier is None or (is_ours and earlier != line):
            written["statusLine"] = [earlier, line]
            settings["statusLine"] = line
        return self._render(settings), written

    def disconnected(self, written: Mapping[str, list[object]]) -> tuple[str | None, list[str]]:
        """The text as it was before, and the keys that were changed since and are left alone.

        None: nothing is left, and there was no file before.
        """
        settings = {k: dict(v) if isinstance(v, dict) else v for k, v in self._settings.items()}
        changed = []
        for key, (before, ours) in written.items():
            table, _, name = key.rpartition(".")
            found = settings.get(table) if table else settings
            if not isinstance(found, dict) or name not in found:
                continue
            if found[name] != ours:
                changed.append(key)
            elif before is None:
                del found[name]
            else:
                found[name] = before
        if settings == self._settings:
            return self._text, changed
        if settings.get("env") == {}:
            del settings["env"]
        return (self._render(settings) if self._text and settings else None), changed

    def unrecorded(self, address: str, waiting: Mapping[str, str]) -> Written:
        """Our own values in this file, when the record of them is in an unknown state folder.

        Empty unless all of them are there: an address of this machine in the variable `address`,
        and every setting of `waiting`. Nobody else writes all of them.
        """
        env = self.variables
        try:
            host = urlsplit(env.get(address, "")).hostname
        except ValueError:
            host = None
        if host not in HOSTS or any(env.get(name) != value for name, value in waiting.items()):
            return {}
        written: Written = {f"env.{name}": [None, env[name]] for name in (address, *waiting)}
        line = self._settings.get("statusLine")
        if isinstance(line, dict) and str(line.get("command")).endswith("jackline statusline"):
            written["statusLine"] = [None, line]
        return written

    def _render(self, settings: Mapping[str, object]) -> str:
        found = _INDENT.match(self._text or "")
        end = "" if self._text and not self._text.endswith("\n") else "\n"
        return json.dumps(settings, indent=found[1] if found else 2, ensure_ascii=False) + end


class ConnectionRecords:
    """The values that `connect` wrote, by settings file, in a state folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "connected.json"

    def of(self, settings: Path) -> Written:
        """The values written into this file; empty without a record that we signed."""
        return self._verified(settings, self._read().get(str(settings))) or {}

    def ignored(self, settings: Path) -> str:
        """A sentence when there is a record of this file that is not used, else empty."""
        found = self._read().get(str(settings))
        if found is None or self._verified(settings, found) is not None:
            return ""
        return (
            f"the record of {settings} in {self._path} is ignored: this installation has not signed"
            " it (an older version wrote it, or somebody else); nothing is restored from it, and"
            " only values that Jackline itself writes are removed"
        )

    def save(self, settings: Path, written: Written) -> None:
        """Add these values; the value before the first `connect` stays the one to restore."""
        merged = self.of(settings)
        for key, (before, ours) in written.items():
            merged[key] = [merged[key][0] if key in merged else before, ours]
        try:
            secret = installation_key()
        except NotPrivateError as error:
            raise UnsafeFileError(f"{error.filename} {error.problem}", hint=error.fix) from error
        signed = signature(secret, _PURPOSE, *self._signed_parts(settings, merged))
        self._write({**self._read(), str(settings): {"written": merged, "signature": signed}})

    def forget(self, settings: Path) -> None:
        """Delete the record of this file, and with the last one the file of records."""
        records = self._read()
        left = {path: pairs for path, pairs in records.items() if path != str(settings)}
        if left:
            self._write(left)
        elif records:
            self._path.unlink(missing_ok=True)

    def files(self) -> list[Path]:
        """The settings files of which there is a record."""
        return [Path(path) for path in self._read()]

    def _read(self) -> dict[str, object]:
        try:
            found = json.loads(read_private(self._path, _LARGEST_RECORD))
        except FileNotFoundError:
            return {}
        except NotPrivateError as error:
            raise UnsafeFileError(f"{self._path} {error.problem}", hint=error.fix) from error
        except OSError as error:
            raise UnreadableError(
                f"{self._path} cannot be read: {error.strerror or type(error).__name__}",
                hint="correct or move the file, then run it again",
            ) from error
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self, records: dict[str, object]) -> None:
        try:
            make_private_folder(self._path.parent)
            write_private(self._path, f"{json.dumps(records, indent=2)}\n".encode())
        except NotPrivateError as error:
            raise UnsafeFileError(f"{error.filename} {error.problem}", hint=error.fix) from error
        except OSError as error:
            raise UsageError(
                f"{self._path} cannot be changed: {error.strerror or type(error).__name__}",
                hint="check who may write there, then run it again",
            ) from error

    def _verified(self, settings: Path, record: object) -> Written | None:
        """The values of a record, if this installation has signed it."""
        if not isinstance(record, dict):
            return None
        written, signed = record.get("written"), record.get("signature")
        if not isinstance(written, dict) or not isinstance(signed, str):
            return None
        try:
            key = installation_key(make=False)
        except FileNotFoundError:
            return None
        except NotPrivateError as error:
            raise UnsafeFileError(f"{error.filename} {error.problem}", hint=error.fix) from error
        parts = self._signed_parts(settings, written)
        return written if is_signature(key, signed, _PURPOSE, *parts) else None

    @staticmethod
    def _signed_parts(settings: Path, written: Written) -> tuple[bytes, ...]:
        values = json.dumps(written, sort_keys=True, separators=(",", ":"))
        return b"claude-code", str(settings).encode("utf-8", "surrogateescape"), values.encode()
