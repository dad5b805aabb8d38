"""Answer the control endpoint: change faults while running, restart, read the ledger.

Rules: (1) it takes what scenarios contain, checked the same way; (2) errors are JSON with a
sentence and, where there is one, the next step; (3) a request names packaged scenarios only:
files are named on the command line; (4) the request must name this machine as its Host, so that a
page whose name was bound to 127.0.0.1 gets nothing; what a browser sends for another site's page
is refused; the port in Host is ignored, because behind a tunnel it is another than ours. The
gateway's own check (gateway/) has the same rules for more names; it lies above this package,
which may not import it.
Not here: what the orders do (live_provider.py). There is no token against other users of this
machine; scenario.py bounds what they can request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from jackline.errors import BadArgumentError, JacklineError, RefusedError, UnreadableError
from jackline.simulator.faults import Fault
from jackline.simulator.http_wire import HttpRequest
from jackline.simulator.live_provider import LiveProvider
from jackline.simulator.scenario import from_document, load_packaged, read_table

_THIS_MACHINE = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{1,5})?")
# `none` is what a browser says when its user typed the address or opened a bookmark.
_OWN_SITES = frozenset(("same-origin", "none"))


def refusal_reason(headers: Mapping[str, str]) -> str | None:
    """Why a request must be refused because of where it is addressed to or comes from, or None."""
    host = headers.get("host", "").lower()
    if _THIS_MACHINE.fullmatch(host) is None:
        return "requests for the control endpoint must name 127.0.0.1 or localhost as their host"
    origin = headers.get("origin")
    is_own_origin = origin is None or origin.lower() == f"http://{host}"
    if not is_own_origin or headers.get("sec-fetch-site", "none").lower() not in _OWN_SITES:
        return "requests from pages of other sites are refused"
    return None


PREFIX = "/_control"
_FORBIDDEN = 403
ROUTES = {
    "GET /_control/ledger": "every request, the counts and the bill",
    "GET /_control/summary": "the counts and the bill",
    "GET /_control/faults": "the faults at work, with their handles; zero is at `epoch`",
    "POST /_control/faults": "add a fault: the keys of a scenario's [[fault]], seconds from now",
    "DELETE /_control/faults": "end all faults",
    "DELETE /_control/faults/HANDLE": "end one fault",
    "POST /_control/reset": "an empty ledger, full buckets and empty prompt caches",
    "GET /_control/settings": "the settings at work",
    "POST /_control/settings": "a scenario as JSON, or {'scenario': NAME}; begins anew",
}


def answer(playing: LiveProvider, request: HttpRequest) -> tuple[int, bytes]:
    """The status and the JSON body for a request to the control endpoint."""
    why = refusal_reason(request.headers)
    if why is not None:
        return _FORBIDDEN, _error(RefusedError(why))
    order = request.path.partition(PREFIX)[2].strip("/")
    try:
        document = _carry_out(playing, request.method, order, request.raw)
    except JacklineError as error:
        return error.http_status, _error(error)
    return 200, json.dumps(document, default=str).encode()


def _error(error: JacklineError) -> bytes:
    return json.dumps({"error": error.to_json()}).encode()


def _carry_out(playing: LiveProvider, method: str, order: str, raw: bytes) -> object:
    what, _, handle = order.partition("/")
    if what == "faults" and method == "DELETE":
        playing.clear_faults(_handle(handle) if handle else None)
        return {"cleared": handle or "all"}
    if method == "POST":
        return _post(playing, order, _object(raw))
    if method == "GET":
        return _get(playing, order)
    raise _unknown(method, order)


def _get(playing: LiveProvider, order: str) -> object:
    provider = playing.provider
    if order == "ledger":
        return provider.ledger.to_json()
    if order == "summary":
        return provider.ledger.summary()
    if order == "faults":
        now = playing.now()
        at_work = [active for active in provider.faults if not active.over(now)]
        return {
            "now": now,
            "epoch": playing.calendar.epoch,
            "faults": [_fault_json(one.handle, one.fault) for one in at_work],
        }
    if order == "settings":
        return json_ready(asdict(playing.settings))
    if order == "":
        return {"routes": ROUTES}
    raise _unknown("GET", order)


def _post(playing: LiveProvider, order: str, document: dict[str, Any]) -> object:
    if order == "faults":
        return {"handle": playing.add_fault(read_table(Fault, document, "fault"))}
    if order == "reset":
        playing.restart()
        return {"reset": True}
    if order == "settings":
        named = document.get("scenario")
        if isinstance(named, str):
            scenario = load_packaged(named)
        else:
            scenario = from_document("settings", document)
        playing.restart(scenario.settings, scenario.mind)
        return {"scenario": scenario.name, "description": scenario.description}
    raise _unknown("POST", order)


def _fault_json(handle: int, fault: Fault) -> object:
    return {"handle": handle, **json_ready(asdict(fault))}


def json_ready(document: dict[str, Any]) -> dict[str, Any]:
    """The document without what JSON cannot say: an endless time becomes null."""
    ready: dict[str, Any] = json.loads(json.dumps(document, default=str), parse_constant=_no_number)
    return ready


def _no_number(_name: str) -> None:
    return None


def _object(raw: bytes) -> dict[str, Any]:
    try:
        document = json.loads(raw or b"{}")
    except ValueError as error:
        raise BadArgumentError(f"the body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise BadArgumentError("the body is not a JSON object")
    return document


def _handle(text: str) -> int:
    if not text.isdecimal():
        raise BadArgumentError(f"{text!r} is not a handle", next="GET /_control/faults lists them")
    return int(text)


def _unknown(method: str, order: str) -> JacklineError:
    return UnreadableError(
        f"there is no {method} {PREFIX}/{order}", next=f"GET {PREFIX}/ lists what there is"
    )
