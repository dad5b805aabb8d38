"""Rules for the looks of a report: text that wraps, JSON that parses, a page that stands alone."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from jackline.autopsy import html_report, text_report
from jackline.autopsy.report import WhyReport, build
from jackline.transcripts.story import ReadProblem, Role, TranscriptEnd
from tests.autopsy.story_makers import (
    MISSED,
    after,
    agent,
    agent_report,
    evidence,
    overload,
    quota,
    refused_connection,
    seen_failure,
    stopped,
)

HOSTILE = "<script>alert('x')</script>&\""


def full_report() -> WhyReport:
    stories = [
        agent("main", role=Role.MAIN, reports=[agent_report("Done.", "completed", is_error=False)]),
        *(stopped(f"s{n}", quota(), 100 + n, reports=[agent_report(MISSED)]) for n in range(12)),
        stopped("busy", overload(), 300, failures=[seen_failure(overload(), 300, status=529)]),
        agent("hurt", failures=[seen_failure(refused_connection(), 40, fatal=False, status=None)]),
        agent("cut", ending=TranscriptEnd.CUT),
    ]
    found = evidence(*stories)
    found.problems = [ReadProblem(Path("broken.jsonl"), "lines that are not JSON", 3)]
    return build(found, now=after(500))


class Outline(HTMLParser):
    """Every tag and attribute of a page; unclosed elements are an error."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.first_words = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta", "br", "link"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "body" in self.open and data.strip() and not self.first_words:
            self.first_words = data


def outline(page: str) -> Outline:
    parser = Outline()
    parser.feed(page)
    assert parser.open == []
    return parser


@pytest.mark.parametrize("width", [60, 100])
def test_prose_stays_within_the_width_except_the_verdict_and_commands(width: int) -> None:
    lines = text_report.render(full_report(), width=width).splitlines()
    verdict, *rest = lines
    assert verdict == full_report().verdict
    assert [line for line in rest if len(line) > width and "claude --resume" not in line] == []


def test_a_figure_is_not_parted_from_its_unit() -> None:
    for width in range(50, 101):
        for line in text_report.render(full_report(), width=width).splitlines():
            assert not line.strip().startswith(("s ", "s.", "UTC"))


def test_text_is_plain_unless_someone_paints_it() -> None:
    assert "\x1b" not in text_report.render(full_report())
    painted = text_report.render(full_report(), paint=lambda text, tone: f"<{tone}>{text}")
    assert painted.startswith("<verdict>")


def test_the_text_has_all_parts() -> None:
    shown = text_report.render(full_report())
    for part in (
        "Cause 1 of 2",
        "Reported vs. actual",
        "Survived",
        "2 agents finished",
        "stopped silently",
        "To resume",
        "What to do now",
        "broken.jsonl: lines that are not JSON (3 times)",
    ):
        assert part in shown


def test_the_json_document_names_its_schema_and_survives_a_round_trip() -> None:
    document = full_report().to_json()
    assert document["schema"] == "jackline.why/2"
    again = json.loads(json.dumps(document))
    assert again["agents_by_fate"] == {"finished": 2, "stopped": 13, "cut off": 1}
    assert [cause["agents_stopped"] for cause in again["causes"]] == [12, 1]
    assert again["causes"][0]["resets_at"] == "2026-06-18T22:10:00+03:00"
    assert again["problems"] == [
        {"path": "broken.jsonl", "what": "lines that are not JSON", "count": 3}
    ]


def test_the_page_begins_with_the_verdict() -> None:
    report = full_report()
    assert outline(html_report.page(report)).first_words == report.verdict


def test_the_page_asks_the_network_for_nothing() -> None:
    page = html_report.page(full_report())
    for tag, attributes in outline(page).tags:
        assert tag not in {"script", "link", "img", "iframe", "object"}
        assert not {"src", "href", "style"} & attributes.keys()
        assert not any(name.startswith("on") for name in attributes)
    assert "@import" not in page
    assert "url(" not in page
    (policy,) = [a["content"] for _, a in outline(page).tags if "http-equiv" in a]
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")


def test_the_page_has_one_readable_row_per_agent() -> None:
    report = full_report()
    rows = [a for tag, a in outline(html_report.page(report)).tags if a.get("role") == "listitem"]
    assert len(rows) == len(report.agents)
    assert all(row["aria-label"] for row in rows)


def test_markup_in_names_and_errors_stays_text() -> None:
    found = evidence(
        stopped(HOSTILE, quota(), failures=[seen_failure(quota(), text=HOSTILE)], label=HOSTILE),
        agent("b", result_at=HOSTILE),
    )
    page = html_report.page(build(found, now=after(400), show_content=True))
    assert "<script" not in page
    outline(page)


def test_hundreds_of_finished_agents_are_folded_away() -> None:
    many = [agent(f"f{n}") for n in range(200)]
    page = html_report.page(build(evidence(stopped("a", quota()), *many), now=after(400)))
    assert "<summary>200 agents finished</summary>" in page


def test_a_report_on_nothing_is_still_a_page_and_a_text() -> None:
    nothing = build(evidence(), now=after(0))
    assert "No agent was found" in html_report.page(nothing)
    assert "Looked at 0 files" in text_report.render(nothing)
