"""Find Google's token where Google's own tools find it: variables, logins, service accounts.

Laws: (1) google-auth's defaults decide; (2) a token that will soon expire is fetched anew before it
is used; (3) no token in an error.
Not here: where it is sent (vertex.py).
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Protocol, cast

from jackline.errors import UsageError
from jackline.providers.fetching import Fetching, missing

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_LOG_IN = "Log in with: gcloud auth application-default login"


class _Credentials(Protocol):
    token: str | None

    @property
    def valid(self) -> bool: ...

    def refresh(self, request: object) -> None: ...


class GoogleCredentials:
    """The token of this machine's user or service account."""

    def __init__(self) -> None:
        if not _is_installed():
            raise missing("Vertex with Google's own credentials", "vertex")
        self._credentials: _Credentials | None = None
        self._fetching = Fetching(self._fetch)
        self.project: str | None = None

    @property
    def token(self) -> bytes | None:
        """The token, once it was fetched."""
        token = None if self._credentials is None else self._credentials.token
        return None if token is None else token.encode()

    @property
    def are_fresh(self) -> bool:
        """Whether the token is there and will not expire in the next minutes."""
        return self._credentials is not None and self._credentials.valid

    async def prepare(self) -> None:
        """Fetch the token; UsageError when somebody must log in, OSError when it cannot be had."""
        await self._fetching.once()

    def _fetch(self) -> None:
        auth = import_module("google.auth")
        exceptions = import_module("google.auth.exceptions")
        try:
            if self._credentials is None:
                found, self.project = auth.default(scopes=[_SCOPE])
                self._credentials = cast(_Credentials, found)
            if not self._credentials.valid:
                with import_module("requests").Session() as session:
                    transport = import_module("google.auth.transport.requests")
                    self._credentials.refresh(transport.Request(session))
        except exceptions.DefaultCredentialsError as error:
            told = "No Google credentials were found for Vertex."
            raise UsageError(told, next=_LOG_IN) from error
        except exceptions.GoogleAuthError as error:
            # The text of such an error may quote what the server said about an account.
            name = type(error).__name__
            if isinstance(error, exceptions.TransportError) or error.retryable:
                raise ConnectionError(f"Google could not be asked for a token ({name})") from error
            told = f"The Google credentials for Vertex cannot be used ({name})."
            raise UsageError(told, next=_LOG_IN) from error


def _is_installed() -> bool:
    try:
        return find_spec("google.auth") is not None and find_spec("requests") is not None
    except ModuleNotFoundError:  # not even the package that it stands in
        return False
