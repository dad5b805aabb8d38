"""Speak to Claude on Amazon Bedrock.

Laws: (1) requests are signed by AWS's keys, or carry a Bedrock key: never anything of the client's;
(2) answers reach the ear as Anthropic's events; (3) the model is named in the path, by the user's
map or else by the profile for the region.
Not here: signing (aws_signing.py), keys (aws_credentials.py), frames (bedrock_stream.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from jackline import __version__
from jackline.dialects import read_answer, read_request
from jackline.dialects.neutral.account import Translated
from jackline.dialects.neutral.foreign_error import to_anthropic_error
from jackline.errors import UsageError
from jackline.providers.aws_credentials import AwsCredentials
from jackline.providers.aws_signing import ToSign, signed_headers
from jackline.providers.bedrock_stream import BedrockStream
from jackline.providers.cloud_requests import (
    BEDROCK_BETAS,
    MESSAGES,
    cloud_request,
    known_betas,
    model_in_path,
)
from jackline.providers.model_ids import bedrock_id
from jackline.providers.provider import CannotCarryError
from jackline.providers.sent_body import plain, raw
from jackline.providers.sent_headers import betas_of, given_headers, own_secret, with_own
from jackline.providers.settings import Credential, UpstreamSettings
from jackline.providers.translating import TranslatingEar
from jackline.upstream.origin import Origin
from jackline.upstream.port import Ear, Message

_VERSION = "bedrock-2023-05-31"
_SERVICE = "bedrock"
_EVENT_STREAM = b"application/vnd.amazon.eventstream"
_KEY_VARIABLE = "AWS_BEARER_TOKEN_BEDROCK"
_HOST = re.compile(r"bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.(?:vpce\.)?(?:amazonaws|api\.aws)")
_REGION = re.compile(r"[a-z]{2}(?:-[a-z]+)+-\d")


class BedrockProvider:
    """One region of Bedrock."""

    def __init__(
        self,
        settings: UpstreamSettings,
        origin: Origin,
        environ: Mapping[str, str],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._origin = origin
        self._now = now
        self._headers = given_headers(settings)
        self._region = _signing_region(settings, origin, environ)
        self._profile = settings.region or self._region
        self._bearer = own_secret(settings)
        self._credentials: AwsCredentials | None = None
        if settings.credential is Credential.VENDOR:
            key = environ.get(_KEY_VARIABLE, "").strip()
            if key:
                self._bearer = key.encode()
            else:
                self._credentials = AwsCredentials()

    @property
    def origin(self) -> Origin:
        """Where it is."""
        return self._origin

    @property
    def is_ready(self) -> bool:
        """Whether AWS's keys are there and fresh, where they are needed."""
        return self._credentials is None or self._credentials.are_fresh

    async def prepare(self) -> None:
        """Fetch AWS's keys, where they are needed."""
        if self._credentials is not None:
            await self._credentials.prepare()

    def render(self, message: Message, model: str) -> Message:
        """The message as an invocation of the model, signed for this moment."""
        if message.target.partition(b"?")[0] != MESSAGES or not model:
            raise CannotCarryError("Bedrock takes nothing but messages here")
        asked = cloud_request(message, _VERSION)
        asked.members.pop("stream", None)
        betas = known_betas(betas_of(message.headers), BEDROCK_BETAS)
        if betas:
            asked.members["anthropic_beta"] = raw(betas)
        body = asked.body()
        way = "invoke-with-response-stream" if asked.stream else "invoke"
        target = f"/model/{model_in_path(bedrock_id(model, self._profile))}/{way}"
        accept = _EVENT_STREAM.decode() if asked.stream else "application/json"
        headers = {"Content-Type": "application/json", "Accept": accept}
        sent = [
            (n.encode(), v.encode()) for n, v in self._authorized(target, headers, body).items()
        ]
        sent.append((b"User-Agent", f"jackline/{__version__}".encode()))
        return Message(b"POST", target.encode(), with_own(sent, self._unsigned()), body)

    def listen(self, ear: Ear, message: Message, model: str) -> Ear:  # noqa: ARG002 -- the protocol
        """An ear that unwraps AWS's event stream."""
        return TranslatingEar(
            ear,
            wants_stream=read_request(plain(message)).stream,
            whole=_as_it_is,
            stream=BedrockStream,
            stream_type=_EVENT_STREAM,
        )

    def native_error(self, status: int, body: bytes) -> bytes:
        """The error in Anthropic's words."""
        return to_anthropic_error(status, body)

    def _authorized(self, target: str, headers: dict[str, str], body: bytes) -> dict[str, str]:
        if self._bearer is not None:
            return {**headers, "Authorization": f"Bearer {self._bearer.decode()}"}
        if self._credentials is None:
            return headers
        keys = self._credentials.keys
        if keys is None:
            raise CannotCarryError("its AWS credentials have not been fetched")
        # AWS refuses headers of its own kind that are not signed.
        own = {n.decode(): v.decode() for n, v in self._headers if n.lower().startswith(b"x-amz")}
        origin = self._origin
        request = ToSign(
            "POST", origin.address.host_header, origin.path + target, {**headers, **own}, body
        )
        return signed_headers(request, keys, self._region, _SERVICE, self._now())

    def _unsigned(self) -> list[tuple[bytes, bytes]]:
        signs = self._credentials is not None
        return [(n, v) for n, v in self._headers if not (signs and n.lower().startswith(b"x-amz"))]


def _as_it_is(body: bytes) -> Translated:
    return Translated(body, is_error=read_answer(body) is None)


def _signing_region(settings: UpstreamSettings, origin: Origin, environ: Mapping[str, str]) -> str:
    in_host = _HOST.search(origin.address.host)
    named = (
        in_host[1] if in_host else None,
        settings.region,
        environ.get("AWS_REGION"),
        environ.get("AWS_DEFAULT_REGION"),
    )
    for region in named:
        if region and _REGION.fullmatch(region):
            return region
    raise UsageError(
        f"Upstream {settings.name} does not say in which AWS region it is.",
        next="Give it a region, such as us-east-1.",
    )
