"""Whose a credential is by its form, and what of a query may leave."""

from __future__ import annotations

import base64
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.providers import credential_forms
from jackline.providers.credential_forms import (
    login_vendor,
    vendor_at,
    vendors_in,
    without_secrets,
)
from jackline.providers.sent_request import allowed

LONG = b"0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("value", "vendor"),
    [
        (b"sk-ant-api03-x", "Anthropic"),
        (b"Bearer sk-ant-oat01-x", "Anthropic"),
        (b"Bearer sk-proj-" + LONG, "OpenAI"),
        (b"Bearer sk-or-v1-" + LONG, "OpenRouter"),
        (b"Bearer gsk_" + LONG, "Groq"),
        (b"AIza" + LONG, "Google"),
        (b"sk-" + LONG, None),
        (b"xai-grok", None),
        (b"task-ant-colony", None),
        (b"risk-ant-", None),
        (b"eyJhbGciOiJub25lIn0.eyJzdWIiOiJtZSJ9.x", None),
    ],
)
def test_a_key_is_known_by_its_form(value: bytes, vendor: str | None) -> None:
    assert login_vendor([(b"Authorization", value)]) == vendor
    assert login_vendor([(b"x-note", value)]) is None
    assert vendors_in(b"\r\nx-note: " + value) == ({vendor} if vendor else set())


@pytest.mark.parametrize(
    ("host", "vendor"),
    [
        ("api.anthropic.com", "Anthropic"),
        ("API.Anthropic.com.", "Anthropic"),
        ("chatgpt.com", "OpenAI"),
        ("us.openai.azure.com", "Azure"),
        ("notanthropic.com", None),
        ("anthropic.com.evil.example", None),
        ("127.0.0.1", None),
        ("gateway.team.example", None),
    ],
)
def test_a_vendor_is_known_by_its_host(host: str, vendor: str | None) -> None:
    assert vendor_at(host) == vendor


@pytest.mark.parametrize(
    ("target", "sent"),
    [
        (b"/v1/models", b"/v1/models"),
        (b"/v1/models?", b"/v1/models?"),
        (b"/v1/m?beta=true&limit=5", b"/v1/m?beta=true&limit=5"),
        (b"/v1/m?key=x", b"/v1/m"),
        (b"/v1/m?beta=true&KEY=x&limit=5", b"/v1/m?beta=true&limit=5"),
        (b"/v1/m?%6Bey=x&api%5Fkey=y", b"/v1/m"),
        (b"/v1/m?x-goog-api-key=x", b"/v1/m"),
        (b"/v1/m?page_token=abc&pageToken=d", b"/v1/m?page_token=abc&pageToken=d"),
        (b"/v1/m?q=sk%2Dant-x", b"/v1/m"),
        (b"/v1/m?monkey=1&author=x", b"/v1/m?monkey=1&author=x"),
    ],
)
def test_of_a_query_what_names_or_is_a_credential_is_left_out(target: bytes, sent: bytes) -> None:
    assert without_secrets(target) == sent


@given(st.binary(max_size=60))
def test_any_query_is_read(query: bytes) -> None:
    target = b"/v1/m?" + query
    assert without_secrets(without_secrets(target)) == without_secrets(target)
    assert isinstance(vendors_in(query, query), set)


@given(st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=30))
def test_an_unknown_header_is_not_sent(name: str) -> None:
    header = (f"x-new-{name}".encode(), b"secret")
    assert allowed([header, (b"Content-Type", b"a/b")]) == [(b"Content-Type", b"a/b")]


@pytest.mark.parametrize(
    "unit",
    [
        b"eyJ",
        b"eyJaaaaa",
        b"eyJaaaa.",
        b"eyJaaaa.eyJ",
        b".eyJaaaa",
        b"basic ",
        b"basic    ",
        b"sk-ant-",
        b"ABSK",
        b"oauth-",
        b"_key",
        b"%25",
    ],
)
def test_the_work_grows_with_the_length_and_not_with_its_square(unit: bytes) -> None:
    """Sixteen times the length may cost far more than sixteen times, but not near 256 times."""

    def cost(size: int) -> float:
        value = unit * (size // len(unit))
        lines = b"\r\nauthorization: Bearer " + value + b"\r\nanthropic-beta: " + value
        costs = []
        for _ in range(5):
            start = time.process_time()
            vendors_in(lines, b"/v1/x?" + value)
            without_secrets(b"/v1/x?" + value + b"=1")
            costs.append(time.process_time() - start)
        return min(costs)

    assert cost(64_000) < 100 * max(cost(4_000), 1e-5)


@pytest.mark.parametrize("unit", [b".eyJhbGci", b"Basic aaaaaaaa "])
def test_few_parts_of_a_long_header_are_decoded(
    monkeypatch: pytest.MonkeyPatch, unit: bytes
) -> None:
    decoded: list[bytes] = []

    def counted(part: bytes) -> bytes:
        decoded.append(part)
        return decode(part)

    decode = credential_forms._base64_decoded
    monkeypatch.setattr(credential_forms, "_base64_decoded", counted)
    assert login_vendor([(b"Authorization", b"Bearer " + unit * 5000)]) is None
    assert 0 < len(decoded) <= 64


def test_a_login_is_found_in_long_headers() -> None:
    claims = base64.urlsafe_b64encode(b'{"iss":"https://auth.openai.com"}').rstrip(b"=")
    login = b"eyJhbGciOiJub25lIn0." + claims + b".c2ln"
    for value in (login, b"eyJ" * 9000 + b" " + login, login + b".eyJ" * 9000):
        assert login_vendor([(b"Authorization", b"Bearer " + value)]) == "OpenAI"


@pytest.mark.parametrize(
    "target",
    [
        b"/v1/x/sk-ant-api03-x",
        b"/v1/x%20sk-ant-api03-x",
        b"/v1/x/sk%2Dant%2Dapi03",
        b"/v1/x?key=sk-ant-api03",
        b"/v1/x?key=sk%252Dant%252Dapi03",
        b"/v1/x?key=sk%25252Dant%25252Dapi03",
    ],
)
def test_a_key_is_found_anywhere_in_a_target(target: bytes) -> None:
    assert vendors_in(b"", target) == {"Anthropic"}


def test_a_key_is_found_in_a_header_that_is_written_as_in_a_url() -> None:
    assert vendors_in(b"\r\nx-y: sk%2Dant%2Dapi03") == {"Anthropic"}
    assert without_secrets(b"/x?a=sk%252Dant%252Dapi03&b=1") == b"/x?b=1"
    assert without_secrets(b"/x?a%0A_key=1&b=1") == b"/x?b=1"
