"""Remember what was written into which client's settings, so that it can be taken back.

Laws: (1) only this user can read and write it; (2) a record that makes no sense counts as none:
then nothing is taken back by guess; (3) each record is signed with the installation's key over the
client, the settings file and all values: what it holds is written into the client's settings, so
one that this installation has not signed is ignored.
Not here: the settings themselves (claude_code.py).
"""

from __future__ import annotations

import json
from pathlib import Path

from jackline.clients.claude_code import Written
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
