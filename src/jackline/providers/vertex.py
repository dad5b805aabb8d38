"""The provider for Claude on Google's Vertex AI: credentials and requests.

Rules: (1) requests have a token of Google's: never anything of the client's; (2) google-auth's
defaults find the token; one that expires soon is fetched again before it is used; no token in an
error; (3) the model is in the path, by the user's map or else by Vertex's own name for it; (4)
answers are passed on as they come: they are Anthropic's already.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from urllib.parse import quote

import msgspec

from jackline.dialects import read_request
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
from jackline.providers.provider import Provider
from jackline.providers.sent_request import (
    BETA,
    JSON_HEADERS,
    UnsupportedRequestError,
    configured_headers,
    own_secret,
    plain_body,
    raw,
    with_own,
)
from jackline.providers.settings import Credential, UpstreamSettings
from jackline.providers.translated_answer import error_type
from jackline.upstream.interface import UpstreamRequest
from jackline.upstream.origin import Origin

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_LOG_IN = "Log in with: gcloud auth application-default login"
_VERSION = "vertex-2023-10-16"
_REGION_IN_HOST = re.compile(
    r"([a-z0-9-]+)-aiplatform\.googleapis\.com|aiplatform\.([a-z]+)\.rep\.googleapis\.com"
)
_PROJECT_VARIABLES = ("ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT")


class GoogleCredentials:
    """The token of this machine's user or service account."""

    def __init__(self) -> None:
        try:
            is_installed = (
                find_spec("google.auth") is not None and find_spec("requests") is not None
            )
        except ModuleNotFoundError:  # not even the package `google`
            is_installed = False
        if not is_installed:
            raise missing_library("Vertex with Google's own credentials", "vertex")
        # An object of google-auth, which is installed only where it is used.
        self._credentials: Any = None
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
        return self._credentials is not None and bool(self._credentials.valid)

    async def prepare(self) -> None:
        """Fetch the token; UsageError when somebody must log in, OSError when Google fails."""
        await self._fetching.once()

    def _fetch(self) -> None:
        auth = import_module("google.auth")
        exceptions = import_module("google.auth.exceptions")
        try:
            if self._credentials is None:
                self._credentials, self.project = auth.default(scopes=[_SCOPE])
            if not self._credentials.valid:
                with import_module("requests").Session() as session:
                    transport = import_module("google.auth.transport.requests")
                    self._credentials.refresh(transport.Request(session))
        except exceptions.DefaultCredentialsError as error:
            problem = "No Google credentials were found for Vertex."
            raise UsageError(problem, hint=_LOG_IN) from error
        except exceptions.GoogleAuthError as error:
            # The text of such an error may quote what the server reported about an account.
            name = type(error).__name__
            if isinstance(error, exceptions.TransportError) or error.retryable:
                raise ConnectionError(f"Google could not be asked for a token ({name})") from error
            problem = f"The Google credentials for Vertex cannot be used ({name})."
            raise UsageError(problem, hint=_LOG_IN) from error


class VertexProvider(Provider):
    """One region of Vertex."""

    def __init__(
        self, settings: UpstreamSettings, origin: Origin, environ: Mapping[str, str]
    ) -> None:
        super().__init__(origin)
        self._prefix = "" if origin.path.endswith("/v1") else "/v1"
        self._headers = configured_headers(settings)
        host = origin.address.host
        in_host = _REGION_IN_HOST.fullmatch(host)
        region = settings.region or (in_host and (in_host[1] or in_host[2]))
        if not region and host == "aiplatform.googleapis.com":
            region = "global"
        self._region = region or environ.get("CLOUD_ML_REGION") or ""
        if not re.fullmatch(r"[a-z0-9-]+", self._region):
            raise UsageError(
                f"Upstream {settings.name} has no Google region.",
                hint="Configure its region, such as global or us-east5.",
            )
        variables = (environ.get(name) for name in _PROJECT_VARIABLES)
        self._project = settings.project or next(filter(None, variables), None)
        self._token = own_secret(settings)
        self._credentials: GoogleCredentials | None = None
        if settings.credential is Credential.VENDOR:
            self._credentials = GoogleCredentials()
        elif self._project is None:
            raise UsageError(
                f"Upstream {settings.name} has no Google project that pays for it.",
                hint="Configure its project.",
            )

    @property
    def is_ready(self) -> bool:
        """Whether Google's token is there and fresh, where it is needed."""
        return self._credentials is None or self._credentials.are_fresh

    async def prepare(self) -> None:
        """Fetch Google's token, where it is needed."""
        if self._credentials is not None:
            await self._credentials.prepare()

    def render(self, request: UpstreamRequest, model: str) -> UpstreamRequest:
        """The request as a prediction of the model."""
        members, stream = cloud_request(request, _VERSION)
        if request.target.partition(b"?")[0] == COUNT_TOKENS:
            named = model or read_request(plain_body(request)).model or ""
            members["model"] = raw(vertex_id(named))
            path = "count-tokens:rawPredict"
        elif model:
            method = "streamRawPredict" if stream else "rawPredict"
            path = f"{model_in_path(vertex_id(model), safe='@')}:{method}"
        else:
            raise UnsupportedRequestError("Vertex takes nothing but messages here")
        token, project = self._token, self._project
        if self._credentials is not None:
            token, project = self._credentials.token, project or self._credentials.project
            if token is None:
                raise UnsupportedRequestError("its Google credentials have not been fetched")
        if project is None:
            raise UnsupportedRequestError("neither its settings nor Google's name a project")
        place = f"projects/{quote(project, safe=':')}/locations/{self._region}"
        target = f"{self._prefix}/{place}/publishers/anthropic/models/{path}"
        headers = list(JSON_HEADERS)
        if token is not None:
            headers.append((b"Authorization", b"Bearer " + token))
        betas = known_betas(request.headers, VERTEX_BETAS)
        if betas:
            headers.append((BETA, ",".join(betas).encode()))
        own = with_own(headers, self._headers)
        return UpstreamRequest(b"POST", target.encode(), own, msgspec.json.encode(members))

    def native_error(self, status: int, body: bytes) -> bytes:
        """The error in Anthropic's form, which errors of the model have anyway."""
        return body if error_type(body) == "error" else super().native_error(status, body)
