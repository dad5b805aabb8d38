"""Answer the control endpoint: change faults while running, restart, read the ledger.

Rules: (1) it accepts what scenarios contain, checked the same way; (2) errors are JSON with a
sentence and, where there is one, the next step; (3) a request names packaged scenarios only:
files are named on the command line; (4) the request must name this machine as its Host, so that a
page whose name was bound to 127.0.0.1 gets nothing; what a browser sends for another site's page
is refused; the port in Host is ignored, because behind a tunnel it is another than ours. The
gateway's own check (gateway/) has the same rules for more names; this package may not
import it, because it is in a higher layer.
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
from jackline.simulator.live_provider import LiveProvider
from jackline.simulator.provider import ProviderSettings
from jackline.simulator.scenario import Scenario, read_table

_THIS_MACHINE = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{1,5})?")
# A browser sends `none` when its user typed the address or opened a bookmark.
_OWN_SITES = frozenset(("same-origin", "none"))


PREFIX = "/_control"
ROUTES = {
    "GET /_control/ledger": "every request, the counts and the costs",
    "GET /_control/summary": "the counts and the costs",
    "GET /_control/faults": "the active faults, with their handles; time zero is at `epoch`",
    "POST /_control/faults": "add a fault: the keys of a scenario's [[fault]], seconds from now",
    "DELETE /_control/faults": "end all faults",
    "DELETE /_control/faults/HANDLE": "end one fault",
    "POST /_control/reset": "an empty ledger, full buckets and empty prompt caches",
    "GET /_control/settings": "the current settings",
    "POST /_control/settings": "a scenario as JSON, or {'scenario': NAME}; starts again",
}


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


def answer(
    playing: LiveProvider, method: str, path: str, headers: Mapping[str, str], raw: bytes
) -> tuple[int, bytes]:
    """The status and the JSON body for a request to the control endpoint."""
    why = refusal_reason(headers)
    path = path.partition(PREFIX)[2].strip("/")
    try:
        if why is not None:
            return 403, json.dumps({"error": RefusedError(why).to_json()}).encode()
        if method == "POST":
            document = _post(playing, path, raw)
        elif method == "GET":
            document = _get(playing, path)
        elif method == "DELETE":
            document = _delete(playing, path)
        else:
            document = None
        if document is None:
            raise UnreadableError(
                f"there is no {method} {PREFIX}/{path}",
                hint=f"GET {PREFIX}/ lists what there is",
            )
    except JacklineError as error:
        return error.http_status, json.dumps({"error": error.to_json()}).encode()
    return 200, json.dumps(document, default=str).encode()


def _get(playing: LiveProvider, path: str) -> object | None:
    provider = playing.provider
    if path == "ledger":
        return provider.ledger.to_json()
    if path == "summary":
        return provider.ledger.summary()
    if path == "faults":
        now = playing.now()
        active = [one for one in provider.faults if not one.over(now)]
        faults = [{"handle": one.handle, **_json_ready(one.fault)} for one in active]
        return {"now": now, "epoch": playing.calendar.epoch, "faults": faults}
    if path == "settings":
        return _json_ready(playing.settings)
    return {"routes": ROUTES} if path == "" else None


def _post(playing: LiveProvider, path: str, raw: bytes) -> object | None:
    try:
        document = json.loads(raw or b"{}")
    except ValueError as error:
        raise BadArgumentError(f"the body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise BadArgumentError("the body is not a JSON object")
    if path == "faults":
        return {"handle": playing.add_fault(read_table(Fault, document, "fault"))}
    if path == "reset":
        playing.restart()
        return {"reset": True}
    if path == "settings":
        named = document.get("scenario")
        if isinstance(named, str):
            scenario = Scenario.packaged(named)
        else:
            scenario = Scenario.from_document("settings", document)
        playing.restart(scenario.settings, scenario.script)
        return {"scenario": scenario.name, "description": scenario.description}
    return None


def _delete(playing: LiveProvider, path: str) -> object | None:
    what, _, handle = path.partition("/")
    if what != "faults":
        return None
    if handle and not handle.isdecimal():
        raise BadArgumentError(
            f"{handle!r} is not a handle", hint="GET /_control/faults lists them"
        )
    playing.clear_faults(int(handle) if handle else None)
    return {"cleared": handle or "all"}


def _json_ready(settings: Fault | ProviderSettings) -> dict[str, Any]:
    text = json.dumps(asdict(settings), default=str)
    # Null instead of infinite numbers, which JSON does not have.
    ready: dict[str, Any] = json.loads(text, parse_constant=lambda _name: None)
    return ready
