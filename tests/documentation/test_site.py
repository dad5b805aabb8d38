"""The gateway serves the project's pages: all of them, nothing else, under the strictest policy."""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest

from jackline.documentation.handler import POLICY, Site
from jackline.documentation.rendering import rendered
from jackline.documentation.sources import Page, Sources
from tests.dashboard.service_thread import ServiceThread
from tests.docs.pages import DOCS, all_pages
from tests.docs.test_pages import anchors

SITE = Site(Sources.installed())


class Reader(HTMLParser):
    """What a browser would load or follow, and whether anything is inline."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.ids: set[str] = set()
        self.inline: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids.add(found.get("id") or "")
        if tag == "a":
            self.links.append(found.get("href") or "")
        if tag in ("script", "img"):
            self.loaded.append(found.get("src") or "")
        if tag == "link":
            self.loaded.append(found.get("href") or "")
        self.inline += [name for name in found if name == "style" or name.startswith("on")]


def read(address: str) -> Reader:
    content = SITE.content(address)
    assert content is not None
    reader = Reader()
    reader.feed(content.decode())
    return reader


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceThread]:
    with ServiceThread(tmp_path_factory.mktemp("service")) as running:
        yield running


def fetched(
    service: ServiceThread, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    port = urlsplit(service.url).port
    line = http.client.HTTPConnection("127.0.0.1", port or 0, timeout=60)
    line.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        line.putheader(name.replace("_", "-"), value)
    line.endheaders()
    answer = line.getresponse()
    content = answer.read()
    line.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, content


# --- what is in the site -----------------------------------------------------------------------


def test_every_page_of_the_project_is_in_it() -> None:
    pages = {path.stem for path in all_pages() if path.suffix == ".md"}
    assert pages == {Path(name).name for name in SITE._sources.pages}


@pytest.mark.parametrize("address", [a for a in SITE.addresses if a.endswith(".html")])
def test_a_page_links_and_loads_only_what_is_there(address: str) -> None:
    page = read(address)
    assert page.inline == []
    for target in page.loaded:
        assert not urlsplit(target).netloc, "nothing is loaded from elsewhere"
        assert urljoin(address, target) in SITE.addresses, target
    for target in page.links:
        parts = urlsplit(target)
        if parts.scheme:
            continue
        there = urljoin(address, parts.path) if parts.path else address
        assert there in SITE.addresses, f"{address} links to {target}"
        if parts.fragment:
            assert unquote(parts.fragment) in read(there).ids, f"{address} links to {target}"


def test_headings_have_the_anchors_that_github_gives_them() -> None:
    for page in DOCS.glob("*.md"):
        wanted = anchors(page)
        assert wanted <= read(f"{page.stem}.html").ids, page.name


def test_raw_html_is_shown_and_never_run_and_comments_vanish() -> None:
    text = "# A <b>title</b>\n\n<!-- says: unseen words -->\n\n<script>alert(1)</script>\n\n"
    text += "```sh\n<!-- stays -->\n```\n\n[bad](javascript:alert(2)) [gone](../src/x.py) ok\n"
    sources = Sources.installed()
    made = rendered(Page("errors", "docs/errors.md", text), sources).decode()
    assert "unseen words" not in made
    assert "&lt;!-- stays --&gt;" in made
    assert "<script>" not in made
    assert "<b>" not in made
    assert 'href="javascript' not in made
    assert "gone" in made
    assert "../src/x.py" not in made


def test_the_static_site_is_the_same_bytes_and_works_from_a_disk(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "old.html").write_text("old")
    subprocess.run([sys.executable, DOCS / "make_site.py", tmp_path / "site"], check=True)
    found = {
        path.relative_to(tmp_path / "site").as_posix(): path.read_bytes()
        for path in (tmp_path / "site").rglob("*")
        if path.is_file()
    }
    assert found == {address: SITE.content(address) for address in SITE.addresses}


# --- served by the gateway ---------------------------------------------------------------------


def test_the_gateway_serves_pages_style_search_and_pictures(service: ServiceThread) -> None:
    kinds = {
        "index.html": "text/html",
        "reference/cli.html": "text/html",
        "timeline.svg": "image/svg+xml",
        "site.css": "text/css",
        "search.js": "text/javascript",
        "search-index.js": "text/javascript",
    }
    for address, kind in kinds.items():
        status, headers, content = fetched(service, f"/docs/{address}")
        assert (status, headers["content-type"].partition(";")[0]) == (200, kind)
        assert content == SITE.content(address)
        assert headers["content-security-policy"] == POLICY.decode()
        assert headers["x-content-type-options"] == "nosniff"


def test_the_policy_allows_only_what_comes_with_the_pages() -> None:
    policy = dict(part.strip().partition(" ")[::2] for part in POLICY.decode().split(";"))
    assert policy.pop("require-trusted-types-for") == "'script'"
    assert set(policy.values()) == {"'none'", "'self'"}
    assert policy["default-src"] == "'none'"
    assert [name for name, value in policy.items() if value == "'self'"] == [
        "script-src",
        "style-src",
        "img-src",
    ]


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        ("/docs", "/docs/index.html"),
        ("/docs/", "/docs/index.html"),
        ("/docs/?q=bedrock", "/docs/index.html?q=bedrock"),
        ("/docs/gateway", "/docs/gateway.html"),
        ("/docs/gateway.md", "/docs/gateway.html"),
        ("/docs/SECURITY.md", "/docs/SECURITY.html"),
    ],
)
def test_short_addresses_lead_to_the_page(service: ServiceThread, asked: str, place: str) -> None:
    status, headers, _ = fetched(service, asked)
    assert (status, headers["location"]) == (308, place)


@pytest.mark.parametrize(
    "path",
    [
        "/docs/nothing",
        "/docs/../pyproject.toml",
        "/docs/%2e%2e/pyproject.toml",
        "/docs//etc/passwd",
        "/docs/make_site.py",
        "/docs/decisions/../../pyproject.toml",
        "/docs/sources.py",
    ],
)
def test_nothing_else_of_the_disk_is_served(service: ServiceThread, path: str) -> None:
    status, headers, content = fetched(service, path)
    assert status == 404
    assert headers["content-type"].startswith("text/plain")
    assert b"All pages: /docs/" in content


def test_the_same_checks_as_everywhere(service: ServiceThread, tmp_path: Path) -> None:
    for headers in (
        {"Host": "attacker.example"},
        {"Origin": "http://attacker.example"},
        {"Sec_Fetch_Site": "cross-site"},
    ):
        assert fetched(service, "/docs/index.html", **headers)[0] == 403
    assert fetched(service, "/docs/index.html", "POST", Content_Length="0")[0] == 405
    status, _, content = fetched(service, "/docs/index.html", "HEAD")
    assert (status, content) == (200, b"")
    with ServiceThread(tmp_path, token="a-token-of-the-listener") as closed:  # noqa: S106
        assert fetched(closed, "/docs/index.html")[0] == 401
        known = {"x-jackline-token": "a-token-of-the-listener"}
        assert fetched(closed, "/docs/index.html", **known)[0] == 200


def test_every_page_that_help_and_errors_point_to_is_there() -> None:
    named: set[str] = set()
    for source in (DOCS.parent / "src" / "jackline").rglob("*.py"):
        if source.parent.name != "documentation":
            named |= set(re.findall(r"docs/([\w/-]+)\.md", source.read_text("utf-8")))
    assert named
    assert named <= set(SITE._sources.pages)
