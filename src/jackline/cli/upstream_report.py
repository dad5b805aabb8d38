"""Render upstreams, trial calls and orders, and wait until lanes that drain are empty.

Rules: (1) a credential is shown by its kind and where it is stored, never by its value; (2) an
order in force is shown with what it is about and when it ends; (3) waiting changes nothing: whoever
stops waiting leaves the lanes draining; (4) a lane that somebody resumes meanwhile is not waited
for.
Not here: the orders themselves (assembly/gateway_process.py), all about lanes (status.py).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import click

from jackline.assembly import RunningGateway
from jackline.assembly.gateway_process import order, reading_of
from jackline.clock import SystemClock
from jackline.control.text import counted, limit_text, whole_second
from jackline.failures import Failure, Kind
from jackline.failures.sentences import explain, moment_in_words
from jackline.providers.settings import CostClass, Credential, UpstreamSettings

if TYPE_CHECKING:
    from jackline.cli.upstream_trial import TrialResult


_LOOK_EVERY = 0.5


def drain_lanes(running: RunningGateway, pattern: str) -> dict[str, list[str]]:
    """The lanes by what came of them, once the last call in flight has ended: drained, resumed."""
    told = order(running, "drain", {"lane": pattern})
    flying = cast("Mapping[str, int]", told["in_flight"])
    left = sum(flying.values())
    if left:
        words = f"draining: {', '.join(flying)}, {counted(left, 'call')} in flight"
        click.echo(f"{words}; Ctrl-C ends the waiting, not the draining", err=True)
    resumed: set[str] = set()
    while left:
        time.sleep(_LOOK_EVERY)
        left, resumed = _left(running, flying)
    return {"drained": sorted(set(flying) - resumed), "resumed": sorted(resumed)}


def _left(running: RunningGateway, names: Collection[str]) -> tuple[int, set[str]]:
    """How many calls are still in flight on those that drain, and which take calls again."""
    lanes = cast("list[dict[str, Any]]", reading_of(running, "fleet")["lanes"])
    resumed = {each["name"] for each in lanes if each["name"] in names and not each["paused"]}
    waited = [each for each in lanes if each["name"] in names and each["paused"]]
    return sum(each["in_flight"] for each in waited), resumed


_WORDS = {
    Credential.PASS_THROUGH: "the client's own credentials",
    Credential.NONE: "no credentials",
    Credential.VENDOR: "credentials of the vendor's own library",
}
Lanes = Sequence[dict[str, object]]


def as_document(upstreams: Sequence[UpstreamSettings], lanes: Lanes | None) -> dict[str, object]:
    """All upstreams; `lanes` is None when no gateway runs. Secrets are still references."""
    return {
        "schema": "jackline.upstreams/1",
        "gateway": lanes is not None,
        "upstreams": [
            {
                "name": each.name,
                "kind": each.kind.value,
                "url": each.url,
                "host": urlsplit(each.url).hostname,
                "credential": each.credential.value,
                "kept": each.secret,
                "models": dict(each.models),
                "region": each.region,
                "project": each.project,
                "admin_key": each.admin_key,
                "workspace": each.workspace,
                "cost_class": each.cost_class.value,
                "lanes": None if lanes is None else _of(each, lanes),
            }
            for each in upstreams
        ],
    }


def as_lines(upstreams: Sequence[UpstreamSettings], lanes: Lanes | None) -> Iterator[str]:
    """The same for people."""
    for number, each in enumerate(upstreams, 1):
        cost = "" if each.cost_class is CostClass.USUAL else f", cost {each.cost_class}"
        whose = credential_words(each)
        yield f"{number}. {each.name}: {each.kind} at {_address(each)}, {whose}{cost}"
        for pattern, model in each.models.items():
            yield f"     {pattern} → {model}"
        if each.admin_key is not None:
            yield f"     limits are read from its vendor with the key in {each.admin_key}"
        for lane in _of(each, lanes or ()):
            why = f"; {lane['why']}" if lane.get("why") else ""
            figures = f"{lane['in_flight']} of {lane['window']} in flight"
            yield f"     lane {lane['name']}: {lane['state']}, {figures}{why}"
            if limits := limit_text(lane, SystemClock().now()):
                yield f"       limits: {limits}"


def credential_words(upstream: UpstreamSettings) -> str:
    """Whose credentials go there; of a key of its own, where it is kept."""
    words = _WORDS.get(upstream.credential)
    return words or f"{upstream.credential} from {upstream.secret}"


def trial_document(upstream: UpstreamSettings, tried: TrialResult) -> dict[str, object]:
    """What came of a trial call, for programs."""
    failure = tried.failure
    return {
        "schema": "jackline.upstream-test/1",
        "upstream": upstream.name,
        "url": upstream.url,
        "model": tried.model,
        "good": failure is None,
        "status": tried.status,
        "seconds": round(tried.seconds, 3),
        "failure": None if failure is None else failure.to_json(),
        "explanation": None if failure is None else " ".join(_explanation(failure)),
        "next": None if failure is None else _next(upstream, tried, failure),
    }


def trial_lines(upstream: UpstreamSettings, tried: TrialResult) -> Iterator[str]:
    """The same for people."""
    failure = tried.failure
    if failure is None:
        yield f"good: {upstream.name} answers as {tried.model}, after {tried.seconds:.1f} s"
        return
    answered = "does not answer" if tried.status is None else f"answers with status {tried.status}"
    yield f"bad:   {upstream.name} ({_address(upstream)}, {tried.model}) {answered}"
    yield " ".join(_explanation(failure))
    yield f"next:  {_next(upstream, tried, failure)}"


def _explanation(failure: Failure) -> list[str]:
    return explain(failure, SystemClock().now())


def _next(upstream: UpstreamSettings, tried: TrialResult, failure: Failure) -> str:
    if failure.kind is Kind.AUTH:
        return f"look at what is sent there: {credential_words(upstream)}"
    if failure.kind is Kind.MODEL_NOT_FOUND:
        return f"is {tried.model} its name there? the map is upstream.models, or try --model"
    if failure.kind in (Kind.NETWORK_EDGE, Kind.TIMEOUT):
        return "look at its url, proxy and ca_file, and whether the server runs"
    if tried.status == 404:
        return "look at the path of its url: see docs/upstreams.md for how each kind is written"
    if failure.retry_same or failure.resets_at is not None:
        return f"try again later: jackline upstream test {upstream.name}"
    return "correct what is named above, then try again"


def order_words(order: Mapping[str, object]) -> str:
    """What an order given by hand means."""
    about = [
        f"{what} {order[name]}"
        for name, what in (("model", "models"), ("session", "session"), ("agent", "agent"))
        if order.get(name)
    ]
    calls = f"calls of {', '.join(about)}" if about else "all calls"
    until = order.get("until")
    end = "until told otherwise"
    if isinstance(until, int | float):
        now = SystemClock().now()
        end = (
            f"until {moment_in_words(datetime.fromtimestamp(whole_second(until), now.tzinfo), now)}"
        )
    return f"{calls} go to {order.get('upstream')} where they can, {end}"


def probe_words(lanes: Sequence[Mapping[str, object]], asked: str) -> str:
    """What was done about the walls of these lanes, in one sentence."""
    if not lanes:
        return f"{asked} is not parked: calls go there as ever"
    waiting = [str(each["lane"]) for each in lanes if not each["sent"]]
    sent = [str(each["lane"]) for each in lanes if each["sent"]]
    words = [f"one call is on its way on {', '.join(sent)}"] if sent else []
    words += [f"the next call on {', '.join(waiting)} goes out"] if waiting else []
    return f"{', and '.join(words)}: if it is answered, the lane is open again"


def _address(upstream: UpstreamSettings) -> str:
    parts = urlsplit(upstream.url)
    secure = "" if parts.scheme == "https" else f"{parts.scheme}://"
    return f"{secure}{parts.netloc}{parts.path}"


def _of(upstream: UpstreamSettings, lanes: Lanes) -> list[dict[str, object]]:
    return [lane for lane in lanes if str(lane.get("name")).startswith(f"{upstream.name}/")]
