"""The provider for Claude on Amazon Bedrock: credentials, signatures, requests and event streams.

Rules: (1) requests are signed with AWS's keys, or have a Bedrock key: never anything of the
client's; the host, the body and all headers are signed; (2) botocore's chain finds the keys; keys
that expire soon are fetched again before they are used; no key in an error or `repr`; (3) the model
is in the path, by the user's map or else by the profile for the region; (4) answers reach the
handler as Anthropic's events, with their JSON unchanged; Bedrock's exceptions become error events
with its own name for them as `code`; (5) a frame is used only if both of its checksums are right;
how bytes were cut into chunks changes nothing, and memory is bounded; (6) nothing raises while a
stream is decoded: after the first damage or error nothing follows, and no end is invented.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import struct
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote

import msgspec

from jackline import __version__
from jackline.dialects import event_of, read_answer, read_request
from jackline.dialects.json_bounds import UNREADABLE
from jackline.dialects.neutral.fields import TranslatedDocument
from jackline.errors import UsageError
from jackline.failures.wording import redact
from jackline.providers.clouds import (
    BEDROCK_BETAS,
    MESSAGES,
    SharedFetch,
    bedrock_id,
    cloud_request,
    known_betas,
    missing_library,
    model_in_path,
)
from jackline.providers.provider import Provider
from jackline.providers.sent_request import (
    UnsupportedRequestError,
    configured_headers,
    own_secret,
    plain_body,
    raw,
    with_own,
)
from jackline.providers.settings import Credential, UpstreamSettings
from jackline.providers.translated_answer import TranslatingHandler
from jackline.upstream.interface import ResponseHandler, UpstreamRequest
from jackline.upstream.origin import Origin

_ALGORITHM = "AWS4-HMAC-SHA256"
# botocore fetches again when less than ten minutes are left; before that it would not.
_LEAST_SECONDS_LEFT = 5 * 60
# Keys in files have no known end; tools that lend keys write new ones there.
_READ_AGAIN_SECONDS = 5 * 60.0
_LOG_IN = "Log in (aws sso login, aws configure), or name another profile in AWS_PROFILE."


@dataclass(frozen=True, slots=True)
class AwsKeys:
    """Signing keys; temporary ones have a token."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)

    def sign(
        self,
        url: tuple[str, str],
        headers: Mapping[str, str],
        body: bytes | bytearray,
        region: str,
        moment: datetime,
    ) -> dict[str, str]:
        """The headers of a POST and those that sign them, for this moment in UTC.

        `url` is its host and its path, quoted as it is sent, without a query.
        """
        stamp = moment.strftime("%Y%m%dT%H%M%SZ")
        sent = {**headers, "X-Amz-Date": stamp}
        if self.token is not None:
            sent["X-Amz-Security-Token"] = self.token
        lines = {name.lower(): " ".join(value.split()) for name, value in sent.items()}
        lines["host"], path = url
        names = ";".join(sorted(lines))
        canonical = "\n".join(
            (
                "POST",
                # Every service but S3 requires a quoted path to be quoted once more.
                quote(path, safe="/-_.~"),
                "",
                *(f"{name}:{lines[name]}" for name in sorted(lines)),
                "",
                names,
                hashlib.sha256(body).hexdigest(),
            )
        )
        scope = f"{stamp[:8]}/{region}/bedrock/aws4_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        key = b"AWS4" + self.secret_key.encode()
        for part in scope.split("/"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        text = f"{_ALGORITHM}\n{stamp}\n{scope}\n{digest}"
        signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
        sent["Authorization"] = (
            f"{_ALGORITHM} Credential={self.access_key}/{scope},"
            f" SignedHeaders={names}, Signature={signature}"
        )
        return sent


class AwsCredentials:
    """The keys of this machine's user, or of the profile that is named in AWS_PROFILE."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        if find_spec("botocore") is None:
            raise missing_library("Bedrock with AWS's own credentials", "bedrock")
        self._monotonic = monotonic
        # An object of botocore, which is installed only where it is used.
        self._credentials: Any = None
        self._read_at = 0.0
        self._fetching = SharedFetch(self._fetch)
        self.keys: AwsKeys | None = None

    @property
    def are_fresh(self) -> bool:
        """Whether the keys are there and will not expire in the next minutes."""
        if self.keys is None:
            return False
        if self._expires is not None:
            return not self._expires(_LEAST_SECONDS_LEFT)
        return self._monotonic() - self._read_at < _READ_AGAIN_SECONDS

    @property
    def _expires(self) -> Callable[[int], bool] | None:
        # Only temporary keys have this method.
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
                self._credentials = session.get_credentials()
            if self._credentials is None:
                raise UsageError("No AWS credentials were found for Bedrock.", hint=_LOG_IN)
            frozen = self._credentials.get_frozen_credentials()
        # The texts of these errors may quote a command or a file; their names are enough.
        except (exceptions.HTTPClientError, exceptions.ConnectionError) as error:
            name = type(error).__name__
            raise ConnectionError(f"AWS could not be asked for keys ({name})") from error
        except (exceptions.BotoCoreError, exceptions.ClientError) as error:
            name = type(error).__name__
            raise UsageError(
                f"The AWS credentials for Bedrock cannot be used ({name}).", hint=_LOG_IN
            ) from error
        self.keys = AwsKeys(frozen.access_key, frozen.secret_key, frozen.token)


HeaderValue: TypeAlias = bool | int | bytes | str

_PRELUDE = struct.Struct(">III")
_CHECKSUM = struct.Struct(">I")
_SMALLEST = _PRELUDE.size + _CHECKSUM.size
_LARGEST = 24 * 1024 * 1024
_LARGEST_HEADERS = 128 * 1024
_LENGTH = struct.Struct(">H")
# The types of header values; the last number is milliseconds since 1970.
_TRUE, _FALSE, _BYTES, _TEXT, _UUID = 0, 1, 6, 7, 9
_NUMBERS: Mapping[int, struct.Struct] = {
    2: struct.Struct(">b"),
    3: struct.Struct(">h"),
    4: struct.Struct(">i"),
    5: struct.Struct(">q"),
    8: struct.Struct(">q"),
}


class Frame(NamedTuple):
    """One message of the stream."""

    headers: Mapping[str, HeaderValue]
    payload: bytes


class EventStreamDecoder:
    """Takes bytes as they come and returns complete frames."""

    __slots__ = ("_buffer", "is_damaged")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.is_damaged = False

    @property
    def held(self) -> int:
        """The size of what is no complete frame yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete now, up to the first damage."""
        frames: list[Frame] = []
        if self.is_damaged:
            return frames
        self._buffer += data
        try:
            while (frame := self._next()) is not None:
                frames.append(frame)
        except (ValueError, IndexError, struct.error):
            self.is_damaged = True
            self._buffer.clear()
        return frames

    def _next(self) -> Frame | None:
        """The next frame, if it is complete; ValueError, IndexError or struct.error for damage."""
        buffer = self._buffer
        if len(buffer) < _PRELUDE.size:
            return None
        total, headers_length, checksum = _PRELUDE.unpack_from(buffer)
        if zlib.crc32(buffer[:8]) != checksum:
            raise ValueError("the checksum of a prelude is wrong")
        if headers_length > _LARGEST_HEADERS or not (
            _SMALLEST + headers_length <= total <= _LARGEST
        ):
            raise ValueError("a frame has impossible lengths")
        if len(buffer) < total:
            return None
        frame = bytes(buffer[:total])
        del buffer[:total]
        body_end = total - _CHECKSUM.size
        if zlib.crc32(frame[:body_end]) != _CHECKSUM.unpack_from(frame, body_end)[0]:
            raise ValueError("the checksum of a frame is wrong")
        headers_end = _PRELUDE.size + headers_length
        headers = self._headers(frame[_PRELUDE.size : headers_end])
        return Frame(headers, frame[headers_end:body_end])

    @staticmethod
    def _headers(data: bytes) -> dict[str, HeaderValue]:
        headers: dict[str, HeaderValue] = {}
        start = 0
        while start < len(data):
            name_end = start + 1 + data[start]
            name, kind = data[start + 1 : name_end].decode(), data[name_end]
            start = end = name_end + 1
            value: HeaderValue
            if kind in (_TRUE, _FALSE):
                value = kind == _TRUE
            elif kind in _NUMBERS:
                end = start + _NUMBERS[kind].size
                value = _NUMBERS[kind].unpack_from(data, start)[0]
            elif kind == _UUID:
                end = start + 16
                value = data[start:end]
            elif kind in (_BYTES, _TEXT):
                start += _LENGTH.size
                end = start + _LENGTH.unpack_from(data, name_end + 1)[0]
                value = data[start:end] if kind == _BYTES else data[start:end].decode()
            else:
                raise ValueError("a header is of an unknown type")
            if end > len(data) or name in headers:
                raise ValueError("a header is cut off, or comes twice")
            headers[name] = value
            start = end
        return headers


_TYPES: Mapping[str, str] = {
    "throttlingexception": "rate_limit_error",
    "modelnotreadyexception": "overloaded_error",
    "serviceunavailableexception": "overloaded_error",
    "modeltimeoutexception": "timeout_error",
    "validationexception": "invalid_request_error",
    "accessdeniedexception": "permission_error",
    "resourcenotfoundexception": "not_found_error",
}
_STATUS_TYPES: Mapping[int, str] = {429: "rate_limit_error", 529: "overloaded_error"}
_LONGEST_TEXT = 1000
# Real ones have some hundred bytes.
_LARGEST_EXCEPTION = 256 * 1024


class _Chunk(msgspec.Struct):
    event: bytes = msgspec.field(name="bytes")


class _Event(msgspec.Struct):
    type: str


class _Exception(msgspec.Struct, rename="camel"):
    message: str | None = None
    original_message: str | None = None
    original_status_code: int | None = None


_chunk = msgspec.json.Decoder(_Chunk)
_event = msgspec.json.Decoder(_Event)
_exception = msgspec.json.Decoder(_Exception)


class BedrockStream:
    """Bytes of an AWS event stream in, bytes of Anthropic's stream out."""

    __slots__ = ("_decoder", "_over")

    def __init__(self) -> None:
        self._decoder = EventStreamDecoder()
        self._over = False

    @property
    def held(self) -> int:
        """The size of the frame that is not complete."""
        return self._decoder.held

    def feed(self, data: bytes) -> bytes:
        """The events that these bytes complete."""
        if self._over:
            return b""
        events: list[bytes] = []
        is_damaged = False
        for frame in self._decoder.feed(data):
            try:
                if frame.headers.get(":message-type") == "event":
                    events.append(self._chunk(frame))
                    continue
                events.append(self._exception(frame))
            except UNREADABLE:
                is_damaged = True
            self._over = True
            break
        if is_damaged or (self._decoder.is_damaged and not self._over):
            self._over = True
            text = "error decoding response body: the event stream is damaged"
            events.append(self._error({"type": "api_error", "message": text}))
        return b"".join(events)

    def end(self) -> bytes:
        """Nothing: all complete frames were passed on, and a frame that was cut off is dropped."""
        return b""

    @staticmethod
    def _chunk(frame: Frame) -> bytes:
        if frame.headers.get(":event-type") != "chunk":
            return b""
        data = _chunk.decode(frame.payload).event
        if b"\n" in data or b"\r" in data:
            # Line ends can only be between the tokens of JSON, where they mean nothing.
            data = data.replace(b"\n", b" ").replace(b"\r", b" ")
        return event_of(_event.decode(data).type.encode(), data)

    @classmethod
    def _exception(cls, frame: Frame) -> bytes:
        headers = frame.headers
        name = str(headers.get(":exception-type") or headers.get(":error-code") or "error")
        if len(frame.payload) > _LARGEST_EXCEPTION:
            raise ValueError("an exception is larger than any real one")
        error = _exception.decode(frame.payload) if frame.payload else _Exception()
        text = (error.message or str(headers.get(":error-message") or ""))[:_LONGEST_TEXT]
        original = (error.original_message or "")[:_LONGEST_TEXT]
        if original not in text:
            text = f"{text} {original}".strip()
        kind = _STATUS_TYPES.get(error.original_status_code or 0) or _TYPES.get(name.lower())
        message = redact(text or name, _LONGEST_TEXT)
        return cls._error({"type": kind or "api_error", "message": message, "code": name})

    @staticmethod
    def _error(error: dict[str, str]) -> bytes:
        return event_of(b"error", msgspec.json.encode({"type": "error", "error": error}))


_EVENT_STREAM = b"application/vnd.amazon.eventstream"
_HOST = re.compile(r"bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.(?:vpce\.)?(?:amazonaws|api\.aws)")
_REGION = re.compile(r"[a-z]{2}(?:-[a-z]+)+-\d")


class BedrockProvider(Provider):
    """One region of Bedrock."""

    def __init__(
        self,
        settings: UpstreamSettings,
        origin: Origin,
        environ: Mapping[str, str],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        super().__init__(origin)
        self._now = now
        in_host = _HOST.search(origin.address.host)
        named = (
            in_host[1] if in_host else None,
            settings.region,
            environ.get("AWS_REGION"),
            environ.get("AWS_DEFAULT_REGION"),
        )
        region = next((each for each in named if each and _REGION.fullmatch(each)), None)
        if region is None:
            raise UsageError(
                f"Upstream {settings.name} has no AWS region.",
                hint="Configure its region, such as us-east-1.",
            )
        self._region = region
        self._profile = settings.region or region
        self._bearer = own_secret(settings)
        self._credentials: AwsCredentials | None = None
        if settings.credential is Credential.VENDOR:
            key = environ.get("AWS_BEARER_TOKEN_BEDROCK", "").strip()
            if key:
                self._bearer = key.encode()
            else:
                self._credentials = AwsCredentials()
        # AWS refuses headers of its own that are not signed; the others are sent unsigned.
        self._unsigned = configured_headers(settings)
        self._signed: dict[str, str] = {}
        if self._credentials is not None:
            own = [each for each in self._unsigned if each[0].lower().startswith(b"x-amz")]
            self._signed = {name.decode(): value.decode() for name, value in own}
            self._unsigned = [each for each in self._unsigned if each not in own]

    @property
    def is_ready(self) -> bool:
        """Whether AWS's keys are there and fresh, where they are needed."""
        return self._credentials is None or self._credentials.are_fresh

    async def prepare(self) -> None:
        """Fetch AWS's keys, where they are needed."""
        if self._credentials is not None:
            await self._credentials.prepare()

    def render(self, request: UpstreamRequest, model: str) -> UpstreamRequest:
        """The request as an invocation of the model, signed for this moment."""
        if request.target.partition(b"?")[0] != MESSAGES or not model:
            raise UnsupportedRequestError("Bedrock takes nothing but messages here")
        members, stream = cloud_request(request, "bedrock-2023-05-31")
        members.pop("stream", None)
        betas = known_betas(request.headers, BEDROCK_BETAS)
        if betas:
            members["anthropic_beta"] = raw(betas)
        body = msgspec.json.encode(members)
        method = "invoke-with-response-stream" if stream else "invoke"
        target = f"/model/{model_in_path(bedrock_id(model, self._profile))}/{method}"
        accept = _EVENT_STREAM.decode() if stream else "application/json"
        headers = {"Content-Type": "application/json", "Accept": accept}
        if self._bearer is not None:
            headers["Authorization"] = f"Bearer {self._bearer.decode()}"
        elif self._credentials is not None:
            if self._credentials.keys is None:
                raise UnsupportedRequestError("its AWS credentials have not been fetched")
            url = self.origin.address.host_header, self.origin.path + target
            headers |= self._signed
            headers = self._credentials.keys.sign(url, headers, body, self._region, self._now())
        sent = [(name.encode(), value.encode()) for name, value in headers.items()]
        sent.append((b"User-Agent", f"jackline/{__version__}".encode()))
        return UpstreamRequest(b"POST", target.encode(), with_own(sent, self._unsigned), body)

    def wrap_handler(
        self,
        handler: ResponseHandler,
        request: UpstreamRequest,
        model: str,  # noqa: ARG002 -- the protocol
    ) -> ResponseHandler:
        """A handler that decodes AWS's event stream."""
        return TranslatingHandler(
            handler,
            wants_stream=read_request(plain_body(request)).stream,
            translate=lambda body: TranslatedDocument(body, is_error=read_answer(body) is None),
            stream=BedrockStream,
            stream_type=_EVENT_STREAM,
        )
