"""The settings of Claude Code: variables, status line, and the signed record of our changes.

Rules: (1) the new content is pure: text in, text out; order and indentation stay; (2) a file that
is no JSON object, or whose `env` is none, is not touched; where we write, null and an empty `env`
count as nothing; (3) the record holds what we wrote and the value before it, is private to this
user, and is signed with the installation's key over the client, the settings file and all values;
(4) a record that makes no sense or that this installation has not signed is ignored: nothing is
restored by guess.
Not here: writing settings files (settings_change.py).
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
from jackline.private_files import (
    NotPrivateError,
    installation_key,
    is_signature,
    make_private_folder,
    read_private,
    signature,
    write_private,
)

Json: TypeAlias = dict[str, object]
Written: TypeAlias = dict[str, list[object]]
"""By dotted key: what stood there before (None: nothing), and what was written."""

# The client draws it anew after each answer; a session that waits for one has none for hours.
_LINE_EVERY_S = 10
_THIS_MACHINE = ("127.0.0.1", "::1", "localhost")
_INDENT = re.compile(r"\{\s*\n([ \t]+)\"")


def settings_file(environ: Mapping[str, str], home: Path, project: Path | None) -> Path:
    """The user's own file, or the project's personal one, which is not shared with others."""
    if project is not None:
        return project / ".claude" / "settings.local.json"
    folder = environ.get("CLAUDE_CONFIG_DIR")
    return (Path(folder) if folder else home / ".claude") / "settings.json"


def variables_in(text: str | None, path: Path) -> dict[str, str]:
    """The variables that the settings give to the client already."""
    found = _parsed(text, path).get("env")
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}


def connected(
    text: str | None, path: Path, variables: Mapping[str, str], status_line: str
) -> tuple[str, Written]:
    """The settings with these variables, and our status line unless there is another one; and
    what that replaced."""
    settings = _parsed(text, path)
    written: Written = {}
    env = settings.get("env")
    env = dict(env) if isinstance(env, dict) else {}  # null: as if it were not there
    for name, value in variables.items():
        if env.get(name) != value:
            written[f"env.{name}"] = [env.get(name), value]
            env[name] = value
    if env:
        settings["env"] = env
    line = {"type": "command", "command": status_line, "refreshInterval": _LINE_EVERY_S}
    found = settings.get("statusLine")
    is_ours = isinstance(found, dict) and found.get("command") == status_line
    if found is None or (is_ours and found != line):
        written["statusLine"] = [found, line]
        settings["statusLine"] = line
    return _printed(settings, text), written


def disconnected(
    text: str | None, path: Path, written: Mapping[str, list[object]]
) -> tuple[str | None, list[str]]:
    """The settings as they were, and the keys that someone has changed since and are left alone.

    None: nothing is left, and there was no file before. Where nothing of ours stands, every byte
    stays.
    """
    settings, found_before = _parsed(text, path), _parsed(text, path)
    kept = []
    for key, (before, ours) in written.items():
        table, _, name = key.rpartition(".")
        found = settings.get(table) if table else settings
        if not isinstance(found, dict) or name not in found:
            continue
        if found[name] != ours:
            kept.append(key)
        elif before is None:
            del found[name]
        else:
            found[name] = before
    if settings == found_before:
        return text, kept
    if settings.get("env") == {}:
        del settings["env"]
    if text is None or not settings:
        return None, kept
    return _printed(settings, text), kept


def unrecorded(text: str | None, path: Path, address: str, waiting: Mapping[str, str]) -> Written:
    """What `connect` has written, where its record is in a state folder that is not known here.

    Only when all of it stands there: an address on this machine under the name `address`, and
    every setting for waiting as it is written. Nobody else writes all of them.
    """
    env = variables_in(text, path)
    if not _is_here(env.get(address, "")) or any(
        env.get(name) != value for name, value in waiting.items()
    ):
        return {}
    written: Written = {f"env.{name}": [None, env[name]] for name in (address, *waiting)}
    line = _parsed(text, path).get("statusLine")
    if isinstance(line, dict) and str(line.get("command")).endswith("jackline statusline"):
        written["statusLine"] = [None, line]
    return written


def _is_here(address: str) -> bool:
    try:
        return urlsplit(address).hostname in _THIS_MACHINE
    except ValueError:
        return False  # no address at all, and so none of ours


def user_home() -> Path:
    """Whose settings they are."""
    return Path(os.path.expanduser("~"))  # noqa: PTH111 -- HOME counts, also where no user is known


def _parsed(text: str | None, path: Path) -> Json:
    if text is None or not text.strip():
        return {}
    try:
        settings = json.loads(text)
    except ValueError as error:
        raise _no_settings(path, str(error)) from error
    except RecursionError:
        raise _no_settings(path, "it is nested too deep") from None
    if not isinstance(settings, dict):
        raise _no_settings(path, "it is no JSON object")
    if not isinstance(settings.get("env"), dict | None):
        raise _no_settings(path, "its env is no JSON object")
    return settings


def _no_settings(path: Path, why: str) -> UnreadableError:
    return UnreadableError(
        f"{path} is not the JSON that Claude Code reads ({why}), so it is left as it is",
        next="mend the file; to go through the gateway without it: jackline env",
    )


def _printed(settings: Json, text: str | None) -> str:
    found = _INDENT.match(text or "")
    indent: str | int = found[1] if found else 2
    end = "" if text and not text.endswith("\n") else "\n"
    return json.dumps(settings, indent=indent, ensure_ascii=False) + end


FILE = "connected.json"
_PURPOSE = "what stood in a client's settings before connect"
_CLIENT = b"claude-code"
_LARGEST = 8 << 20


class ConnectionRecords:
    """What was written, by the settings file it was written into."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE

    def of(self, settings: Path) -> Written:
        """What was written into this file; empty if nothing, or nothing known."""
        found = self._all().get(str(settings))
        return _signed(settings, found) or {}

    def ignored(self, settings: Path) -> str:
        """A sentence when there is a record of this file that is not used, else empty."""
        found = self._all().get(str(settings))
        if found is None or _signed(settings, found) is not None:
            return ""
        return (
            f"the record of {settings} in {self._path} is ignored: this installation has not signed"
            " it (an older version wrote it, or somebody else); nothing is restored from it, and"
            " only values that Jackline itself writes are removed"
        )

    def keep(self, settings: Path, written: Written) -> None:
        """Remember it; what was there before the first time stays what was there before."""
        earlier = self.of(settings)
        for key, (before, ours) in written.items():
            first = earlier[key][0] if key in earlier else before
            earlier[key] = [first, ours]
        record = {"written": earlier, "signature": _signature(settings, earlier)}
        self._write({**self._all(), str(settings): record})

    def forget(self, settings: Path) -> None:
        """It was taken back."""
        self._write({path: pairs for path, pairs in self._all().items() if path != str(settings)})

    def _all(self) -> dict[str, object]:
        try:
            found = json.loads(read_private(self._path, _LARGEST))
        except FileNotFoundError:
            return {}
        except NotPrivateError as error:
            raise UnsafeFileError(f"{self._path} {error.problem}", next=error.fix) from error
        except OSError as error:
            raise UnreadableError(
                f"{self._path} cannot be read: {error.strerror or type(error).__name__}",
                next="mend or move the file, then run it again",
            ) from error
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self, records: dict[str, object]) -> None:
        try:
            make_private_folder(self._path.parent)
            write_private(self._path, f"{json.dumps(records, indent=2)}\n".encode())
        except NotPrivateError as error:
            raise UnsafeFileError(f"{error.filename} {error.problem}", next=error.fix) from error
        except OSError as error:
            raise UsageError(
                f"{self._path} cannot be changed: {error.strerror or type(error).__name__}",
                next="check who may write there, then run it again",
            ) from error


def _signed(settings: Path, record: object) -> Written | None:
    """What the record holds, if this installation has signed it."""
    if not isinstance(record, dict):
        return None
    written, given = record.get("written"), record.get("signature")
    if not isinstance(written, dict) or not isinstance(given, str):
        return None
    try:
        key = installation_key(make=False)
    except FileNotFoundError:
        return None
    except NotPrivateError as error:
        raise UnsafeFileError(f"{error.filename} {error.problem}", next=error.fix) from error
    return written if is_signature(key, given, _PURPOSE, *_parts(settings, written)) else None


def _signature(settings: Path, written: Written) -> str:
    try:
        key = installation_key()
    except NotPrivateError as error:
        raise UnsafeFileError(f"{error.filename} {error.problem}", next=error.fix) from error
    return signature(key, _PURPOSE, *_parts(settings, written))


def _parts(settings: Path, written: Written) -> tuple[bytes, ...]:
    values = json.dumps(written, sort_keys=True, separators=(",", ":"))
    return _CLIENT, str(settings).encode("utf-8", "surrogateescape"), values.encode()
