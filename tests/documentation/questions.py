"""The questions that users ask first, and finding their answers as a user would.

Rules: (1) words are typed into the search of the pages that a gateway serves, in a real browser;
(2) an answer is the section that the first hit opens, by its own words.
Not here: what is demanded (test_questions.py), what is measured (bench/questions.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from playwright.sync_api import Page


@dataclass(frozen=True)
class Question:
    """A question, the words that users type for it, and what its answer must name."""

    about: str
    typed: tuple[str, ...]
    answer: tuple[str, ...]


QUESTIONS = (
    Question(
        "spend per session",
        ("spend per session", "how much did a session cost", "cost per session"),
        ("jackline cost", "jackline open"),
    ),
    Question(
        "Bedrock", ("bedrock", "use bedrock", "aws bedrock"), ("bedrock", "region", "us-east-1")
    ),
    Question(
        "two machines",
        ("two machines", "several machines", "share machines"),
        ("ssh -L", "own gateway"),
    ),
    Question(
        "costliest agent",
        ("costliest agent", "which agent costs most", "most expensive agent"),
        ("jackline cost", "jackline show"),
    ),
    Question(
        "what happens to my token",
        ("what happens to my token", "is my api key stored", "where does my token go"),
        ("passed on", "not stored"),
    ),
    Question("uninstall", ("uninstall", "remove jackline"), ("jackline uninstall", "uv tool")),
    Question("Codex", ("codex", "codex cli"), ("jackline connect codex",)),
    Question("opencode", ("opencode",), ("opencode.json", "8766")),
    Question("aider", ("aider",), ("ANTHROPIC_API_BASE",)),
    Question("LangChain", ("langchain",), ("ChatAnthropic", "base_url")),
    Question("OpenAI SDK", ("openai sdk",), ("base_url", "8766/v1")),
    Question("Agent SDK", ("agent sdk", "claude agent sdk"), ("ANTHROPIC_BASE_URL",)),
    Question("Slack", ("slack", "slack messages"), ("webhook", "env:SLACK_HOOK")),
    Question(
        "corporate TLS and proxies",
        ("corporate proxy", "tls certificate", "company proxy"),
        ("HTTPS_PROXY", "ca_file"),
    ),
    Question("logs", ("logs", "where are log files"), ("jackline logs", "gateway.log")),
)

_SECTION = """() => {
	const id = decodeURIComponent(location.hash.slice(1));
	const start = id ? document.getElementById(id) : document.querySelector("h1");
	const level = Number(start.tagName[1]);
	const texts = [start.textContent];
	for (let next = start.nextElementSibling; next; next = next.nextElementSibling) {
		if (/^H[1-6]$/.test(next.tagName) && Number(next.tagName[1]) <= level) break;
		texts.push(next.textContent);
	}
	return texts.join("\\n");
}"""


def answer_of(page: Page, docs: str, typed: str) -> tuple[str, int]:
    """The section that the first hit opens, and how many words of hits stood before it."""
    page.goto(f"{docs}index.html")
    page.keyboard.press("/")
    page.keyboard.type(typed)
    first = page.locator("#found li").first
    first.wait_for()
    words = len(re.findall(r"\S+", first.inner_text()))
    before = page.url
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: url != before)
    page.wait_for_load_state("load")
    return str(page.evaluate(_SECTION)), words
