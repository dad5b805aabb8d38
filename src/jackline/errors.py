"""Name every error by who must act, and carry what the reader needs to act.

    JacklineError
    ├── UsageError            you have to change something
    │   ├── BadArgumentError      a flag or argument has no valid meaning
    │   ├── BadConfigError        files, variables or flags hold settings that are not valid
    │   ├── UnreadableError       a file, folder or id that was named cannot be read or found
    │   ├── NothingFoundError     nothing was found in the default places
    │   ├── PortTakenError        another program holds the port, or it is not allowed
    │   ├── UnsafeFileError       other users can have written a file or folder of ours
    │   └── UnreachableError      no gateway answers
    │       └── UntrustedGatewayError   one answers that cannot prove to be this user's
    ├── RefusedError          we declined; nothing was sent
    ├── FlowError             a run did not get to its end
    │   ├── StepFailedError       one of its steps failed for good
    │   ├── LeaseLostError        another process carries the run now
    │   └── JournalError          its record cannot be read or written
    │       └── StoreUnavailableError its disk is full or fails for now; the run is paused
    │           └── StoreLockedError  another program holds it; the run is paused
    └── InternalError         our bug

Rules: (1) every leaf has a code, an HTTP status, a CLI exit code and an anchor in docs/errors.md;
(2) `hint` names the command or change that fixes it; (3) no message holds a prompt, key or token:
what code of users raised is quoted in `private` alone (user_errors.py); (4) each leaf is raised
somewhere. If an agent meets a limit, an outage or a budget, that is no exception, but the
`terminated_by` and the evidence of its `Outcome`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


class ExitCode(IntEnum):
    """What a command of ours returns to its caller; `claude` and `exec` return the client's."""

    DONE = 0, "done; for `why`: a cause was found"
    FAILED = 1, "failed; for `why`: nothing found, or the text is not recognised"
    USAGE = 2, "usage: an argument, file or setting has to change"
    PARTLY = 3, "finished, but some of it failed; for `why --jsonl`: bad lines"
    LOGIN = 4, "`upstream test`: a credential is refused"
    UNREACHABLE = 5, "no gateway answers, or an upstream cannot be reached"
    LATER = 75, "parked or limited: try again later"
    INTERRUPTED = 130, "interrupted"

    meaning: str

    def __new__(cls, number: int, meaning: str) -> ExitCode:
        """The number, with what it means."""
        made = int.__new__(cls, number)
        made._value_ = number
        made.meaning = meaning
        return made


class JacklineError(Exception):
    """Any error that Jackline raises on purpose."""

    code: ClassVar[str] = "jackline"
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = ExitCode.FAILED

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        retry_at: datetime | None = None,
        private: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.retry_at = retry_at
        self.private = private

    @property
    def docs_anchor(self) -> str:
        """The section of docs/errors.md on this error."""
        return f"docs/errors.md#{self.code.replace('_', '-')}"

    def to_json(self) -> dict[str, object]:
        """The error as `--json` and HTTP show it."""
        return {
            "code": self.code,
            "message": self.message,
            "hint": self.hint or None,
            "retry_at": None if self.retry_at is None else self.retry_at.isoformat(),
        }


class UsageError(JacklineError):
    """You have to change an argument, a file or a setting."""

    code = "usage"
    http_status = 400
    exit_code = ExitCode.USAGE


class BadArgumentError(UsageError):
    """A flag or argument has no valid meaning."""

    code = "bad_argument"


class BadConfigError(UsageError):
    """Files, variables or flags hold settings that are not valid; `faults` are all of them."""

    code = "bad_config"

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        faults: Sequence[str] = (),
    ) -> None:
        super().__init__(message, hint=hint)
        self.faults = tuple(faults)

    def to_json(self) -> dict[str, object]:
        """The error with its faults one by one."""
        return {**super().to_json(), "faults": list(self.faults)}


class UnreadableError(UsageError):
    """A file, folder or id that was named cannot be read or found."""

    code = "unreadable"
    http_status = 404


class NothingFoundError(UsageError):
    """Jackline found nothing in the default places."""

    code = "nothing_found"
    http_status = 404
    exit_code = ExitCode.FAILED


class PortTakenError(UsageError):
    """The gateway cannot use its port: another program holds it, or it is not allowed."""

    code = "port_taken"
    http_status = 503
    exit_code = ExitCode.FAILED


class UnsafeFileError(UsageError):
    """Other users of this machine can have written a file or folder of ours: it is not used."""

    code = "unsafe_file"
    http_status = 403


class UnreachableError(UsageError):
    """No gateway answers, or it did not start or stop."""

    code = "unreachable"
    http_status = 503
    exit_code = ExitCode.UNREACHABLE


class UntrustedGatewayError(UnreachableError):
    """A gateway answers that has not proved to be this user's: nothing was sent to it."""

    code = "untrusted_gateway"


class RefusedError(JacklineError):
    """We declined, and nothing was sent."""

    code = "refused"
    http_status = 429


class FlowError(JacklineError):
    """A run did not get to its end."""

    code = "flow"
    exit_code = ExitCode.FAILED


class StepFailedError(FlowError):
    """One of the run's steps failed for good."""

    code = "step_failed"
    exit_code = ExitCode.PARTLY


class LeaseLostError(FlowError):
    """Another process runs this run now; this one writes nothing more."""

    code = "lease_lost"
    http_status = 409


class JournalError(FlowError):
    """The run's record cannot be read or written."""

    code = "journal"


class StoreUnavailableError(JournalError):
    """The run's record could not be written for too long: the run is paused as saved."""

    code = "store_unavailable"
    http_status = 503
    exit_code = ExitCode.LATER


class StoreLockedError(StoreUnavailableError):
    """Another program has held the run's record for too long: the run is paused as saved."""

    code = "store_locked"


class InternalError(JacklineError):
    """Our bug; the report should hold the message and no more."""

    code = "internal"
