"""Find AWS's keys where AWS's own tools find them: variables, profiles, logins, instance roles.

Laws: (1) botocore's chain decides; (2) keys that will soon expire are fetched anew before they are
used; (3) no key in an error.
Not here: what is signed with them (aws_signing.py).
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Protocol, cast

from jackline.errors import UsageError
from jackline.providers.aws_signing import AwsKeys
from jackline.providers.fetching import Fetching, missing

# botocore fetches anew when less than ten minutes are left; before that it would not.
_LEAST_SECONDS_LEFT = 5 * 60


class _Frozen(Protocol):
    access_key: str
    secret_key: str
    token: str | None


class _Credentials(Protocol):
    def get_frozen_credentials(self) -> _Frozen: ...


class AwsCredentials:
    """The keys of this machine's user, or of the profile that is named in AWS_PROFILE."""

    def __init__(self) -> None:
        if find_spec("botocore") is None:
            raise missing("Bedrock with AWS's own credentials", "bedrock")
        self._credentials: _Credentials | None = None
        self._keys: AwsKeys | None = None
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
        # Only keys that were lent for a time know the question.
        expires = getattr(self._credentials, "refresh_needed", None)
        return expires is None or not expires(_LEAST_SECONDS_LEFT)

    async def prepare(self) -> None:
        """Fetch the keys; UsageError when there are none, OSError when they cannot be had now."""
        await self._fetching.once()

    def _fetch(self) -> None:
        exceptions = import_module("botocore.exceptions")
        try:
            if self._credentials is None:
                session = import_module("botocore.session").Session()
                self._credentials = cast(_Credentials | None, session.get_credentials())
            if self._credentials is None:
                raise UsageError(
                    "No AWS credentials were found for Bedrock.",
                    next="Log in (aws sso login, aws configure) or name a profile in AWS_PROFILE.",
                )
            frozen = self._credentials.get_frozen_credentials()
        except (exceptions.BotoCoreError, exceptions.ClientError) as error:
            # The text of such an error may quote a command or a file; its name says enough.
            raise ConnectionError(
                f"AWS credentials could not be fetched ({type(error).__name__})"
            ) from error
        self._keys = AwsKeys(frozen.access_key, frozen.secret_key, frozen.token)
