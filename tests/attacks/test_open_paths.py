"""What a caller can have done with nothing but the port: every path that needs no token."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import pytest

from jackline.assembly import Service
from jackline.clock import VirtualClock
from jackline.control.open_documents import (
    MOST_KEPT,
    IsWanted,
    OpenDocument,
    OpenDocuments,
    Parameters,
)
from tests.assembly.world import ask, gateway, request, run
from tests.docs.pages import text_of

# These cost the same for whoever asks, whatever has been going on. That of the feed is bounded by
# the pages that may be open (tests/dashboard/test_feed.py), that of telemetry by `otlp.receive`.
SAME_COST = {
    "GET /",
    # Pages of the package itself, rendered once.
    "GET /docs/…",
    "GET /healthz",
    "GET /readyz",
    "GET /_jackline/proof",
    "GET /_jackline/feed",
    "POST /_jackline/view",
}
_TURNED_AWAY = (401, 403)


def _told() -> list[tuple[str, str]]:
    """Every path of the service, by the page that tests/docs/test_reference.py holds complete."""
    page = text_of("reference/http.md").partition("## Paths about Jackline itself")[2]
    return re.findall(r"^\| `(GET|POST) (/\S*)`", page, re.MULTILINE)


def documents_of(service: Service) -> OpenDocuments:
    return next(each for each in service._router._handlers if isinstance(each, OpenDocuments))


def test_every_path_that_needs_no_token_is_a_document_with_one_owner_or_costs_nothing(
    tmp_path: Path,
) -> None:
    """Who adds a path answers it through OpenDocuments, asks for a token, or argues here."""

    async def main() -> None:
        async with gateway(tmp_path, "http://127.0.0.1:9") as service:
            found = set()
            for method, path in _told():
                if path == "/_jackline/feed":  # a stream
                    found.add(f"{method} {path}")
                    continue
                raw = request(method.encode(), path.encode(), b"", key=None)
                if (await ask(service.url, raw)).status not in _TURNED_AWAY:
                    found.add(f"{method} {path}")
            documents = {f"GET {path.decode()}" for path in documents_of(service).paths}
            assert found == documents | SAME_COST
            assert not documents & SAME_COST

    run(main())


def _counted(document: OpenDocument, made: list[Parameters]) -> OpenDocument:
    async def make(names: Parameters, is_wanted: IsWanted) -> bytes:
        made.append(names)
        return await document.make(names, is_wanted)

    return document._replace(make=make)


@pytest.mark.parametrize("varied", [False, True], ids=["the same", "another each time"])
def test_a_document_is_made_a_few_times_however_often_anybody_asks(
    tmp_path: Path, varied: bool
) -> None:
    async def main() -> None:
        async with gateway(tmp_path, "http://127.0.0.1:9") as service:
            owner = documents_of(service)
            # Time stands still for what is shared.
            owner._clock = VirtualClock(datetime(2026, 11, 19, tzinfo=UTC))
            for path, document in list(owner._documents.items()):
                made: list[Parameters] = []
                owner._documents = {**owner._documents, path: _counted(document, made)}
                for number in range(40):
                    about = quote(f"name {number if varied else 0}")
                    query = "&".join(f"{name}={about}" for name in document.parameters)
                    raw = request(b"GET", path + b"?" + query.encode(), key=None)
                    got = await ask(service.url, raw)
                    assert got.status in (200, 404, 503), path
                assert len(made) <= (MOST_KEPT if varied else 1), path

    run(main())
