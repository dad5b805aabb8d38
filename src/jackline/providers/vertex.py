"""The provider for Claude on Google's Vertex AI: credentials and requests.

Rules: (1) requests carry a token of Google's: never anything of the client's; (2) google-auth's
defaults find the token; one that expires soon is fetched again before it is used; no token in an
error; (3) the model is in the path, by the user's map or else by Vertex's own name for it; (4)
answers are passed on as they come: they are Anthropic's already.
Not here: what Bedrock and Vertex share (clouds.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Protocol, cast
from urllib.parse import quote

from jackline import __version__
from jackline.dialects.neutral.answer import to_anthropic_error
from jackline.errors import UsageError
from jackline.providers.clouds import (
    COUNT_TOKENS,
    VERTEX_BETAS,
    SharedFetch,
    cloud_request,
    known_betas,
    missing_library,
    model_in_path,
    vertex_id,
)
from jackline.providers.provider import UnsupportedRequestError
from jackline.providers.sent_request import (
    BETA,
    asked_model,
    betas_of,
    given_headers,
    own_secret,
    plain,
    raw,
    with_own,
)
from jackline.providers.settings import Credential, UpstreamSettings
from jackline.providers.translated_answer import is_anthropic_error
from jackline.upstream.interface import ResponseHandler, UpstreamRequest
from jackline.upstream.origin import Origin

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
            raise missing_library("Vertex with Google's own credentials", "vertex")
        self._credentials: _Credentials | None = None
        self._fetching = SharedFetch(self._fetch)
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


_VERSION = "vertex-2023-10-16"
_REGIONAL = re.compile(r"([a-z0-9-]+)-aiplatform\.googleapis\.com")
_MULTI_REGIONAL = re.compile(r"aiplatform\.([a-z]+)\.rep\.googleapis\.com")
_GLOBAL = "aiplatform.googleapis.com"
_PROJECT_VARIABLES = ("ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT")


class VertexProvider:
    """One region of Vertex."""

    def __init__(
        self, settings: UpstreamSettings, origin: Origin, environ: Mapping[str, str]
    ) -> None:
        self._origin = origin
        self._prefix = "" if origin.path.endswith("/v1") else "/v1"
        self._headers = given_headers(settings)
        self._region = _region(settings, origin, environ)
        variables = (environ.get(name) for name in _PROJECT_VARIABLES)
        self._project = settings.project or next(filter(None, variables), None)
        self._token = own_secret(settings)
        self._credentials: GoogleCredentials | None = None
        if settings.credential is Credential.VENDOR:
            self._credentials = GoogleCredentials()
        elif self._project is None:
            raise UsageError(
                f"Upstream {settings.name} does not say which Google project pays for it.",
                next="Give it a project.",
            )

    @property
    def origin(self) -> Origin:
        """Where it is."""
        return self._origin

    @property
    def is_ready(self) -> bool:
        """Whether Google's token is there and fresh, where it is needed."""
        return self._credentials is None or self._credentials.are_fresh

    async def prepare(self) -> None:
        """Fetch Google's token, where it is needed."""
        if self._credentials is not None:
            await self._credentials.prepare()

    def render(self, message: UpstreamRequest, model: str) -> UpstreamRequest:
        """The message as a prediction of the model."""
        asked = cloud_request(message, _VERSION)
        if message.target.partition(b"?")[0] == COUNT_TOKENS:
            named = model or asked_model(plain(message)) or ""
            asked.members["model"] = raw(vertex_id(named))
            path = "count-tokens:rawPredict"
        elif model:
            way = "streamRawPredict" if asked.stream else "rawPredict"
            path = f"{model_in_path(vertex_id(model), safe='@')}:{way}"
        else:
            raise UnsupportedRequestError("Vertex takes nothing but messages here")
        place = f"projects/{quote(self._paying(), safe=':')}/locations/{self._region}"
        target = f"{self._prefix}/{place}/publishers/anthropic/models/{path}"
        headers: list[tuple[bytes, bytes]] = [
            (b"Content-Type", b"application/json"),
            (b"User-Agent", f"jackline/{__version__}".encode()),
            *self._authorization(),
        ]
        betas = known_betas(betas_of(message.headers), VERTEX_BETAS)
        if betas:
            headers.append((BETA, ",".join(betas).encode()))
        return UpstreamRequest(
            b"POST", target.encode(), with_own(headers, self._headers), asked.body()
        )

    def listen(self, ear: ResponseHandler, message: UpstreamRequest, model: str) -> ResponseHandler:  # noqa: ARG002 -- the protocol
        """The ear itself: Vertex answers as Anthropic does."""
        return ear

    def native_error(self, status: int, body: bytes) -> bytes:
        """The error in Anthropic's words, in which Vertex tells those of the model anyway."""
        return body if is_anthropic_error(body) else to_anthropic_error(status, body)

    def _authorization(self) -> list[tuple[bytes, bytes]]:
        token = self._token
        if self._credentials is not None:
            token = self._credentials.token
            if token is None:
                raise UnsupportedRequestError("its Google credentials have not been fetched")
        return [] if token is None else [(b"Authorization", b"Bearer " + token)]

    def _paying(self) -> str:
        project = self._project
        if project is None and self._credentials is not None:
            project = self._credentials.project
        if project is None:
            raise UnsupportedRequestError(
                "neither its settings nor Google's name a project that pays"
            )
        return project


def _region(settings: UpstreamSettings, origin: Origin, environ: Mapping[str, str]) -> str:
    host = origin.address.host
    in_host = _REGIONAL.fullmatch(host) or _MULTI_REGIONAL.fullmatch(host)
    region = settings.region or (in_host[1] if in_host else None)
    region = region or ("global" if host == _GLOBAL else environ.get("CLOUD_ML_REGION"))
    if not region or not re.fullmatch(r"[a-z0-9-]+", region):
        raise UsageError(
            f"Upstream {settings.name} does not say in which Google region it is.",
            next="Give it a region, such as global or us-east5.",
        )
    return region
