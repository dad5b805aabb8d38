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

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


class JacklineError(Exception):
    """Any error that Jackline raises on purpose."""

    code: ClassVar[str] = "jackline"
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

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
    exit_code = 2


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
    exit_code = 1


class PortTakenError(UsageError):
    """The gateway cannot use its port: another program holds it, or it is not allowed."""

    code = "port_taken"
    http_status = 503
    exit_code = 1


class UnsafeFileError(UsageError):
    """Other users of this machine can have written a file or folder of ours: it is not used."""

    code = "unsafe_file"
    http_status = 403


class UnreachableError(UsageError):
    """No gateway answers, or it did not start or stop."""

    code = "unreachable"
    http_status = 503
    exit_code = 5


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
    exit_code = 1


class StepFailedError(FlowError):
    """One of the run's steps failed for good."""

    code = "step_failed"
    exit_code = 3


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
    exit_code = 75


class StoreLockedError(StoreUnavailableError):
    """Another program has held the run's record for too long: the run is paused as saved."""

    code = "store_locked"


class InternalError(JacklineError):
    """Our bug; the report should hold the message and no more."""

    code = "internal"
