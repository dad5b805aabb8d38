"""The provider for Claude on Amazon Bedrock: credentials, signatures, requests and event streams.

Rules: (1) requests are signed with AWS's keys, or carry a Bedrock key: never anything of the
client's; the host, the body and all headers are signed; (2) botocore's chain finds the keys; keys
that expire soon are fetched again before they are used; no key in an error or `repr`; (3) the model
is in the path, by the user's map or else by the profile for the region; (4) answers reach the
handler as Anthropic's events, with their JSON unchanged; Bedrock's exceptions become error events
with its own name for them as `code`; (5) a frame is used only if both of its checksums are right;
how bytes were cut into chunks changes nothing, and memory is bounded; (6) nothing raises while a
stream is decoded: after the first damage or error nothing follows, and no end is made up.
Not here: what Bedrock and Vertex share (clouds.py).
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
from typing import NamedTuple, Protocol, TypeAlias, cast
from urllib.parse import quote

import msgspec

from jackline import __version__
from jackline.dialects import event_of, read_answer, read_request
from jackline.dialects.neutral.answer import to_anthropic_error
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
from jackline.providers.provider import UnsupportedRequestError
from jackline.providers.sent_request import (
    betas_of,
    given_headers,
    own_secret,
    plain,
    raw,
    with_own,
)
from jackline.providers.settings import Credential, UpstreamSettings
from jackline.providers.translated_answer import TranslatingHandler
from jackline.upstream.interface import ResponseHandler, UpstreamRequest
from jackline.upstream.origin import Origin

_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class AwsKeys:
    """What signs; the token comes with keys that were lent for a time."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class UnsignedRequest:
    """A request; `path` as it goes on the wire, without a query."""

    method: str
    host: str
    path: str
    headers: Mapping[str, str]
    body: bytes | bytearray


def signed_headers(
    request: UnsignedRequest, keys: AwsKeys, region: str, service: str, moment: datetime
) -> dict[str, str]:
    """The given headers and those that sign them, for this moment, which is in UTC."""
    stamp = moment.strftime("%Y%m%dT%H%M%SZ")
    sent = {**request.headers, "X-Amz-Date": stamp}
    if keys.token is not None:
        sent["X-Amz-Security-Token"] = keys.token
    lines = {name.lower(): " ".join(value.split()) for name, value in sent.items()}
    lines["host"] = request.host
    names = ";".join(sorted(lines))
    canonical = "\n".join(
        (
            request.method,
            # Every service but S3 wants what is quoted already to be quoted once more.
            quote(request.path, safe="/-_.~"),
            "",
            *(f"{name}:{lines[name]}" for name in sorted(lines)),
            "",
            names,
            hashlib.sha256(request.body).hexdigest(),
        )
    )
    scope = f"{stamp[:8]}/{region}/{service}/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"{_ALGORITHM}\n{stamp}\n{scope}\n{digest}"
    signature = hmac.new(_key(keys.secret_key, scope), text.encode(), hashlib.sha256).hexdigest()
    sent["Authorization"] = (
        f"{_ALGORITHM} Credential={keys.access_key}/{scope},"
        f" SignedHeaders={names}, Signature={signature}"
    )
    return sent


def _key(secret: str, scope: str) -> bytes:
    key = b"AWS4" + secret.encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


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
            raise missing_library("Bedrock with AWS's own credentials", "bedrock")
        self._monotonic = monotonic
        self._credentials: _Credentials | None = None
        self._keys: AwsKeys | None = None
        self._read_at = 0.0
        self._fetching = SharedFetch(self._fetch)

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


HeaderValue: TypeAlias = bool | int | bytes | str

_PRELUDE = struct.Struct(">III")
_CHECKSUM = struct.Struct(">I")
_SMALLEST = _PRELUDE.size + _CHECKSUM.size
_LARGEST = 24 * 1024 * 1024
_LARGEST_HEADERS = 128 * 1024
_NUMBERS: Mapping[int, struct.Struct] = {
    2: struct.Struct(">b"),
    3: struct.Struct(">h"),
    4: struct.Struct(">i"),
    5: struct.Struct(">q"),
    8: struct.Struct(">q"),  # milliseconds since 1970
}
_LENGTH = struct.Struct(">H")
_BYTES, _TEXT, _UUID = 6, 7, 9


class _DamageError(ValueError):
    """The bytes are no event stream, or were changed on their way."""


class Frame(NamedTuple):
    """One message of the stream."""

    headers: Mapping[str, HeaderValue]
    payload: bytes


class EventStreamDecoder:
    """Takes bytes as they come and gives whole frames back."""

    __slots__ = ("_kept", "is_damaged")

    def __init__(self) -> None:
        self._kept = bytearray()
        self.is_damaged = False

    @property
    def has_rest(self) -> bool:
        """Whether a frame has begun and not ended."""
        return bool(self._kept)

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are whole now, up to the first damage."""
        frames: list[Frame] = []
        if self.is_damaged:
            return frames
        self._kept += data
        try:
            while (frame := self._next()) is not None:
                frames.append(frame)
        except _DamageError:
            self.is_damaged = True
            self._kept.clear()
        return frames

    def _next(self) -> Frame | None:
        kept = self._kept
        if len(kept) < _PRELUDE.size:
            return None
        total, headers_length, checksum = _PRELUDE.unpack_from(kept)
        if zlib.crc32(kept[:8]) != checksum:
            raise _DamageError("the checksum of a prelude is wrong")
        if headers_length > _LARGEST_HEADERS or not (
            _SMALLEST + headers_length <= total <= _LARGEST
        ):
            raise _DamageError("a frame has lengths that cannot be")
        if len(kept) < total:
            return None
        frame = bytes(kept[:total])
        del kept[:total]
        body_end = total - _CHECKSUM.size
        if zlib.crc32(frame[:body_end]) != _CHECKSUM.unpack_from(frame, body_end)[0]:
            raise _DamageError("the checksum of a frame is wrong")
        headers_end = _PRELUDE.size + headers_length
        headers = _headers(frame[_PRELUDE.size : headers_end])
        return Frame(headers, frame[headers_end:body_end])


def _headers(data: bytes) -> dict[str, HeaderValue]:
    headers: dict[str, HeaderValue] = {}
    at = 0
    try:
        while at < len(data):
            name_end = at + 1 + data[at]
            name = _taken(data, at + 1, name_end).decode()
            value, at = _value(data, name_end + 1, data[name_end])
            if name in headers:
                raise _DamageError("a header comes twice")
            headers[name] = value
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise _DamageError("the headers of a frame cannot be read") from error
    return headers


def _value(data: bytes, at: int, kind: int) -> tuple[HeaderValue, int]:
    if kind in (0, 1):
        return kind == 0, at
    if kind in _NUMBERS:
        number: int = _NUMBERS[kind].unpack_from(data, at)[0]
        return number, at + _NUMBERS[kind].size
    if kind == _UUID:
        return _taken(data, at, at + 16), at + 16
    if kind in (_BYTES, _TEXT):
        start = at + _LENGTH.size
        end = start + _LENGTH.unpack_from(data, at)[0]
        value = _taken(data, start, end)
        return (value.decode() if kind == _TEXT else value), end
    raise _DamageError("a header is of no known type")


def _taken(data: bytes, start: int, end: int) -> bytes:
    if end > len(data):
        raise IndexError(end)
    return data[start:end]


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
_DAMAGED = "error decoding response body: the event stream is damaged"
_LONGEST_TEXT = 1000


class _Chunk(msgspec.Struct):
    event: bytes = msgspec.field(name="bytes")


class _Typed(msgspec.Struct):
    type: str


class _Told(msgspec.Struct, rename="camel"):
    message: str | None = None
    original_message: str | None = None
    original_status_code: int | None = None


_chunk = msgspec.json.Decoder(_Chunk)
_typed = msgspec.json.Decoder(_Typed)
_told = msgspec.json.Decoder(_Told)
_UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError)


class BedrockStream:
    """Bytes of an AWS event stream in, bytes of Anthropic's stream out."""

    __slots__ = ("_decoder", "_over")

    def __init__(self) -> None:
        self._decoder = EventStreamDecoder()
        self._over = False

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes, and give the events that they complete."""
        if self._over:
            return b""
        told = []
        for frame in self._decoder.feed(data):
            event, self._over = _event(frame)
            told.append(event)
            if self._over:
                return b"".join(told)
        if self._decoder.is_damaged:
            self._over = True
            told.append(_error("api_error", _DAMAGED))
        return b"".join(told)

    def end(self) -> bytes:
        """Nothing: what could be told has been, and a frame that was cut off shows nothing."""
        return b""


def _event(frame: Frame) -> tuple[bytes, bool]:
    """What a frame tells, and whether it is the last."""
    try:
        if frame.headers.get(":message-type") == "event":
            return _passed_on(frame), False
        return _exception(frame), True
    except _UNREADABLE:
        return _error("api_error", _DAMAGED), True


def _passed_on(frame: Frame) -> bytes:
    if frame.headers.get(":event-type") != "chunk":
        return b""
    data = _chunk.decode(frame.payload).event
    if b"\n" in data or b"\r" in data:
        # Between the tokens of JSON, where alone they can stand, line ends mean nothing.
        data = data.replace(b"\n", b" ").replace(b"\r", b" ")
    return event_of(_typed.decode(data).type.encode(), data)


def _exception(frame: Frame) -> bytes:
    headers = frame.headers
    name = str(headers.get(":exception-type") or headers.get(":error-code") or "error")
    told = _told.decode(frame.payload) if frame.payload else _Told()
    words = told.message or str(headers.get(":error-message") or "")
    if told.original_message and told.original_message not in words:
        words = f"{words} {told.original_message}".strip()
    kind = _STATUS_TYPES.get(told.original_status_code or 0) or _TYPES.get(name.lower())
    return _error(kind or "api_error", redact(words or name)[:_LONGEST_TEXT], name)


def _error(kind: str, message: str, code: str | None = None) -> bytes:
    error = {"type": kind, "message": message}
    if code is not None:
        error["code"] = code
    return event_of(b"error", msgspec.json.encode({"type": "error", "error": error}))


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

    def render(self, message: UpstreamRequest, model: str) -> UpstreamRequest:
        """The message as an invocation of the model, signed for this moment."""
        if message.target.partition(b"?")[0] != MESSAGES or not model:
            raise UnsupportedRequestError("Bedrock takes nothing but messages here")
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
        return UpstreamRequest(b"POST", target.encode(), with_own(sent, self._unsigned()), body)

    def listen(self, ear: ResponseHandler, message: UpstreamRequest, model: str) -> ResponseHandler:  # noqa: ARG002 -- the protocol
        """An ear that unwraps AWS's event stream."""
        return TranslatingHandler(
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
            raise UnsupportedRequestError("its AWS credentials have not been fetched")
        # AWS refuses headers of its own kind that are not signed.
        own = {n.decode(): v.decode() for n, v in self._headers if n.lower().startswith(b"x-amz")}
        origin = self._origin
        request = UnsignedRequest(
            "POST", origin.address.host_header, origin.path + target, {**headers, **own}, body
        )
        return signed_headers(request, keys, self._region, _SERVICE, self._now())

    def _unsigned(self) -> list[tuple[bytes, bytes]]:
        signs = self._credentials is not None
        return [(n, v) for n, v in self._headers if not (signs and n.lower().startswith(b"x-amz"))]


def _as_it_is(body: bytes) -> TranslatedDocument:
    return TranslatedDocument(body, is_error=read_answer(body) is None)


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
