"""Make one real, cheap call to an upstream, and return its result.

Rules: (1) one call, one word, as few tokens as the vendor takes; (2) it goes the way of the
gateway's calls, but without lanes and holding; (3) a client's own credentials are read from this
shell's environment, since no client is here to send them; (4) none of them is printed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase

from jackline.errors import BadArgumentError, ExitCode, UsageError
from jackline.failures import Failure, Kind, Observation, classify
from jackline.lane_id import LaneId
from jackline.providers import UpstreamSettings
from jackline.providers.provided_upstream import ProvidedUpstream, provider_for
from jackline.providers.settings import Credential
from jackline.upstream.bounded_answers import fetch
from jackline.upstream.interface import UpstreamRequest

_TIMEOUT_SECONDS = 60.0
_LARGEST_ANSWER = 8 << 20
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
            return ExitCode.DONE
        if self.failure.kind is Kind.AUTH:
            return ExitCode.LOGIN
        if self.failure.kind in (Kind.NETWORK_EDGE, Kind.TIMEOUT):
            return ExitCode.UNREACHABLE
        return ExitCode.LATER if self.failure.kind in _LATER else ExitCode.FAILED

    def hint(self, upstream: str, credential: str) -> str:
        """What to do about the failure; `credential` says what is sent there."""
        failure = self.failure
        if failure is None:
            return ""
        if failure.kind is Kind.AUTH:
            return f"check what is sent there: {credential}"
        if failure.kind is Kind.MODEL_NOT_FOUND:
            return f"is {self.model} its name there? the map is upstream.models, or try --model"
        if failure.kind in (Kind.NETWORK_EDGE, Kind.TIMEOUT):
            return "check its url, proxy and ca_file, and whether the server runs"
        if self.status == 404:
            return "check the path of its url: see docs/upstreams.md for how each kind is written"
        if failure.retry_same or failure.resets_at is not None:
            return f"try again later: jackline upstream test {upstream}"
        return "correct what is named above, then try again"


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
        # As a client in this shell would send them.
        names = upstream.kind.facts.key_variables
        name = next((name for name in names if environ.get(name, "").strip()), None)
        if name is None:
            raise UsageError(
                "this upstream gets the client's own credentials, and this shell has none to try"
                " it",
                hint=f"set one of {', '.join(names)}; clients that are logged in work without",
            )
        secret = environ[name].strip().encode()
        is_key = name == "ANTHROPIC_API_KEY"
        headers.append(
            (b"x-api-key", secret) if is_key else (b"authorization", b"Bearer " + secret)
        )
        if name == _LOGIN:
            headers.append(_LOGIN_BETA)
    body = {
        "model": model,
        "max_tokens": upstream.kind.facts.smallest_answer,
        "messages": [{"role": "user", "content": "ping"}],
    }
    request = UpstreamRequest(b"POST", b"/v1/messages", headers, json.dumps(body).encode())
    begun = time.monotonic()
    try:
        await provider.prepare()
        sender = ProvidedUpstream({upstream.name: provider})
        lane = LaneId(upstream.name, model, "upstream-test")
        try:
            response = await fetch(
                sender, request, lane, most_bytes=_LARGEST_ANSWER, seconds=_TIMEOUT_SECONDS
            )
        finally:
            await sender.close()
        if response.error is not None:
            raise response.error
    except OSError as error:
        failure = classify(Observation.of_exception(error), now=now)
        return TrialResult(model, time.monotonic() - begun, None, failure)
    seconds = time.monotonic() - begun
    if response.status == 200:
        with suppress(ValueError):
            message = json.loads(response.body)
            if isinstance(message, dict) and message.get("type") == "message":
                return TrialResult(model, seconds, response.status, None)
    seen = Observation.of_response(response.status or 0, response.headers, response.body)
    return TrialResult(model, seconds, response.status, classify(seen, now=now))
