"""Remember what was written into which client's settings, so that it can be taken back.

Laws: (1) only this user can read and write it; (2) a record that makes no sense counts as none:
then nothing is taken back by guess.
Not here: the settings themselves (claude_code.py).
"""

from __future__ import annotations

import json
from pathlib import Path

from jackline.clients.claude_code import Written
from jackline.errors import UnreadableError, UnsafeFileError, UsageError
from jackline.private_files import (
    NotPrivateError,
    make_private_folder,
    read_private,
    write_private,
)

FILE = "connected.json"


class ConnectionRecords:
    """What was written, by the settings file it was written into."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE

    def of(self, settings: Path) -> Written:
        """What was written into this file; empty if nothing, or nothing known."""
        found = self._all().get(str(settings))
        if not isinstance(found, dict):
            return {}
        return {
            key: pair for key, pair in found.items() if isinstance(pair, list) and len(pair) == 2
        }

    def keep(self, settings: Path, written: Written) -> None:
        """Remember it; what was there before the first time stays what was there before."""
        earlier = self.of(settings)
        for key, (before, ours) in written.items():
            first = earlier[key][0] if key in earlier else before
            earlier[key] = [first, ours]
        self._write({**self._all(), str(settings): earlier})

    def forget(self, settings: Path) -> None:
        """It was taken back."""
        self._write({path: pairs for path, pairs in self._all().items() if path != str(settings)})

    def _all(self) -> dict[str, object]:
        try:
            found = json.loads(read_private(self._path))
        except FileNotFoundError:
            return {}
        except NotPrivateError as error:
            raise UnsafeFileError(f"{self._path} {error.problem}", next=error.fix) from error
        except OSError as error:
            raise UnreadableError(
                f"{self._path} cannot be read: {error.strerror or type(error).__name__}",
                next="mend or move the file, then run it again",
            ) from error
        except ValueError:
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
