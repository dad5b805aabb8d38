"""Make one real, cheap call to an upstream, and return its result.

Rules: (1) one call, one word, as few tokens as the vendor takes; (2) it goes the way of the
gateway's calls, but without lanes and holding; (3) a client's own credentials are read from this
shell's environment, since no client is here to send them; (4) none of them is printed.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase

from jackline.errors import BadArgumentError, UsageError
from jackline.failures import Failure, Kind, Observation, classify
from jackline.http1.headers import Headers
from jackline.lane_id import LaneId
from jackline.providers import UpstreamKind, UpstreamSettings
from jackline.providers.provided_upstream import ProvidedUpstream, provider_for
from jackline.providers.settings import Credential
from jackline.upstream.interface import UpstreamRequest

_TIMEOUT_SECONDS = 60.0
_CHEAP = "claude-haiku-4-5"
_LOGIN = "CLAUDE_CODE_OAUTH_TOKEN"
_LOGIN_BETA = (b"anthropic-beta", b"oauth-2025-04-20")
_LATER = frozenset(
    {Kind.SERVER_THROTTLE, Kind.RATE_LIMIT, Kind.ACCOUNT_QUOTA, Kind.OVERLOADED, Kind.UPSTREAM_5XX}
)


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The result of the call; `failure` is None when it was answered."""

    model: str
    seconds: float
    status: int | None
    failure: Failure | None

    @property
    def exit_code(self) -> int:
        """0 answered, 4 a credential, 5 not reachable, 75 later, 1 anything else."""
        if self.failure is None:
            return 0
        if self.failure.kind is Kind.AUTH:
            return 4
        if self.failure.kind in (Kind.NETWORK_EDGE, Kind.TIMEOUT):
            return 5
        return 75 if self.failure.kind in _LATER else 1


@dataclass(slots=True)
class _WholeResponse:
    """A response handler that collects all of it."""

    done: asyncio.Event = field(default_factory=asyncio.Event)
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    error: OSError | None = None

    def began(self, status: int, headers: Headers) -> None:
        self.status = status
        self.headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers
        }

    def heard(self, data: bytes) -> None:
        self.body += data

    def ended(self) -> None:
        self.done.set()

    def broke(self, error: OSError) -> None:
        self.error = error
        self.done.set()


def model_to_try(upstream: UpstreamSettings, requested: str | None) -> str:
    """The model to call there: the one that replaces `requested`, or a cheap one."""
    wanted = requested or _CHEAP
    for pattern, model in upstream.models.items():
        if fnmatchcase(wanted, pattern):
            return model
    if upstream.kind.facts.serves_claude:
        return wanted
    known = requested or next(iter(upstream.models.values()), None)
    if known is None:
        raise BadArgumentError(
            f"the models of {upstream.name} are not known", hint="name a model with --model"
        )
    return known


async def make_trial_call(
    upstream: UpstreamSettings, model: str, environ: Mapping[str, str], now: datetime
) -> TrialResult:
    """Call once, and classify the answer; JacklineError when it cannot even be tried."""
    provider = provider_for(upstream, environ)
    headers = [(b"content-type", b"application/json"), (b"anthropic-version", b"2023-06-01")]
    if upstream.credential is Credential.PASS_THROUGH:
        headers += _own_credentials(upstream.kind, environ)
    body = {
        "model": model,
        "max_tokens": upstream.kind.facts.smallest_answer,
        "messages": [{"role": "user", "content": "ping"}],
    }
    request = UpstreamRequest(b"POST", b"/v1/messages", headers, json.dumps(body).encode())
    response = _WholeResponse()
    begun = time.monotonic()
    try:
        await provider.prepare()
        sender = ProvidedUpstream({upstream.name: provider})
        try:
            sender.start(request, LaneId(upstream.name, model, "upstream-test"), response)
            # Raises TimeoutError, which is an OSError.
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                await response.done.wait()
        finally:
            await sender.close()
        if response.error is not None:
            raise response.error
    except OSError as error:
        failure = classify(Observation.of_exception(error), now=now)
        return TrialResult(model, time.monotonic() - begun, None, failure)
    seconds = time.monotonic() - begun
    if response.status == 200 and _is_message(response.body):
        return TrialResult(model, seconds, response.status, None)
    seen = Observation.of_response(response.status or 0, response.headers, bytes(response.body))
    return TrialResult(model, seconds, response.status, classify(seen, now=now))


def _own_credentials(kind: UpstreamKind, environ: Mapping[str, str]) -> Headers:
    """The credentials that a client in this shell would send."""
    names = kind.facts.key_variables
    name = next((name for name in names if environ.get(name, "").strip()), None)
    if name is None:
        raise UsageError(
            "this upstream gets the client's own credentials, and this shell has none to try it",
            hint=f"set one of {', '.join(names)}; clients that are logged in work without",
        )
    secret = environ[name].strip().encode()
    if name == "ANTHROPIC_API_KEY":
        return [(b"x-api-key", secret)]
    bearer = (b"authorization", b"Bearer " + secret)
    return [bearer, _LOGIN_BETA] if name == _LOGIN else [bearer]


def _is_message(body: bytes | bytearray) -> bool:
    try:
        message = json.loads(body)
    except ValueError:
        return False
    return isinstance(message, dict) and message.get("type") == "message"
