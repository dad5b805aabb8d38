"""Find AWS's keys where AWS's own tools find them: variables, profiles, logins, instance roles.

Laws: (1) botocore's chain decides; (2) keys that will soon expire are fetched anew before they are
used; (3) no key in an error.
Not here: what is signed with them (aws_signing.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Protocol, cast

from jackline.errors import UsageError
from jackline.providers.aws_signing import AwsKeys
from jackline.providers.fetching import Fetching, missing

# botocore fetches anew when less than ten minutes are left; before that it would not.
_LEAST_SECONDS_LEFT = 5 * 60
# Keys in files say nothing of their end; tools that lend keys write new ones there.
_READ_AGAIN_SECONDS = 5 * 60.0
_LOG_IN = "Log in (aws sso login, aws configure), or name another profile in AWS_PROFILE."


class _Frozen(Protocol):
    access_key: str
    secret_key: str
    token: str | None


class _Credentials(Protocol):
    def get_frozen_credentials(self) -> _Frozen: ...


class AwsCredentials:
    """The keys of this machine's user, or of the profile that is named in AWS_PROFILE."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        if find_spec("botocore") is None:
            raise missing("Bedrock with AWS's own credentials", "bedrock")
        self._monotonic = monotonic
        self._credentials: _Credentials | None = None
        self._keys: AwsKeys | None = None
        self._read_at = 0.0
        self._fetching = Fetching(self._fetch)

    @property
    def keys(self) -> AwsKeys | None:
        """The keys, once they were fetched."""
        return self._keys

    @property
    def are_fresh(self) -> bool:
        """Whether the keys are there and will not expire in the next minutes."""
        if self._keys is None:
            return False
        if self._expires is not None:
            return not self._expires(_LEAST_SECONDS_LEFT)
        return self._monotonic() - self._read_at < _READ_AGAIN_SECONDS

    @property
    def _expires(self) -> Callable[[int], bool] | None:
        # Only keys that were lent for a time know the question.
        return getattr(self._credentials, "refresh_needed", None)

    async def prepare(self) -> None:
        """Fetch the keys; UsageError when somebody must log in, OSError when AWS is not reached."""
        await self._fetching.once()

    def _fetch(self) -> None:
        exceptions = import_module("botocore.exceptions")
        try:
            if self._expires is None:
                session = import_module("botocore.session").Session()
                self._read_at = self._monotonic()
                self._credentials = cast(_Credentials | None, session.get_credentials())
            if self._credentials is None:
                raise UsageError("No AWS credentials were found for Bedrock.", next=_LOG_IN)
            frozen = self._credentials.get_frozen_credentials()
        # The texts of these errors may quote a command or a file; their names say enough.
        except (exceptions.HTTPClientError, exceptions.ConnectionError) as error:
            raise ConnectionError(f"AWS could not be asked for keys ({_name(error)})") from error
        except (exceptions.BotoCoreError, exceptions.ClientError) as error:
            raise UsageError(
                f"The AWS credentials for Bedrock cannot be used ({_name(error)}).", next=_LOG_IN
            ) from error
        self._keys = AwsKeys(frozen.access_key, frozen.secret_key, frozen.token)


def _name(error: object) -> str:
    return type(error).__name__
