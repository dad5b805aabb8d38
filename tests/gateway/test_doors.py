"""Only this machine's own programs and pages are let in; tokens are needed where set."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from jackline.gateway.access import foreign, reads_as_browser, token_missing
from jackline.gateway.settings import ListenSettings

HERE = ListenSettings()
Headers = list[tuple[bytes, bytes]]


def named(host: bytes, *more: tuple[bytes, bytes]) -> Headers:
    return [(b"Accept", b"*/*"), (b"Host", host), *more]


@pytest.mark.parametrize(
    "host",
    [
        b"127.0.0.1:8766",
        b"127.0.0.1",
        b"localhost:8766",
        b"LocalHost",
        b"[::1]:8766",
        b"[::1]",
        b" 127.0.0.1:8766\t",
        b"127.0.0.1:80",
        b"localhost:9000",
    ],
)
def test_this_machine_may_be_named_with_any_port_or_without(host: bytes) -> None:
    assert foreign(named(host), HERE) is None


@pytest.mark.parametrize(
    "host",
    [
        b"",
        b"evil.example",
        b"evil.example:8766",
        b"127.0.0.1.evil.example:8766",
        b"localhost.evil.example",
        b"localhost.",
        b"evil.example@127.0.0.1:8766",
        b"127.0.0.1:8766:8766",
        b"127.0.0.1,evil.example",
        b"127.0.0.1:",
        b"127.0.0.1:8766\n",
        b"::1",
        b"::1:8766",
        b"127.1",
        b"2130706433",
        b"0.0.0.0:8766",
        b"192.168.0.7:8766",
        b"\xff",
    ],
)
def test_any_other_host_is_refused(host: bytes) -> None:
    assert foreign(named(host), HERE) is not None


def test_a_host_is_needed_and_only_one() -> None:
    assert foreign([], HERE) is not None
    assert foreign(named(b"localhost", (b"host", b"localhost")), HERE) is not None
    assert foreign(named(b"localhost", (b"HOST", b"evil.example")), HERE) is not None


def test_the_address_that_it_listens_on_may_be_named() -> None:
    listen = ListenSettings(host="Gateway.Example", port=80)
    assert foreign(named(b"gateway.example"), listen) is None
    assert foreign(named(b"gateway.example:80"), listen) is None
    assert foreign(named(b"127.0.0.1"), listen) is None
    assert foreign(named(b"gateway.example:81"), listen) is None
    assert foreign(named(b"other.example"), listen) is not None


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])  # noqa: S104 -- nothing is bound
def test_where_it_listens_everywhere_any_address_may_be_named_but_no_strange_name(
    host: str,
) -> None:
    listen = ListenSettings(host=host)
    assert foreign(named(b"192.168.0.7:8766"), listen) is None
    assert foreign(named(b"[fd00::7]:8766"), listen) is None
    assert foreign(named(b"192.168.0.7:8767"), listen) is None
    assert foreign(named(b"evil.example:8766"), listen) is not None
    assert foreign(named(b"[::zz]:8766"), listen) is not None


def test_names_that_the_user_wrote_may_be_named() -> None:
    listen = ListenSettings(names=("Host.Docker.Internal", "[fd00::7]"))
    assert foreign(named(b"host.docker.internal:8766"), listen) is None
    assert foreign(named(b"[fd00::7]"), listen) is None
    assert foreign(named(b"docker.internal"), listen) is not None
    assert foreign(named(b"host.docker.internal."), listen) is not None
    assert foreign(named(b"x.host.docker.internal"), listen) is not None


def test_a_refused_name_is_told_with_the_line_that_lets_it_in() -> None:
    reason = foreign(named(b"gw.team.example:8766"), HERE) or ""
    assert 'names = ["gw.team.example"]' in reason
    assert "JACKLINE_LISTEN_NAMES=gw.team.example" in reason


@pytest.mark.parametrize(
    ("method", "headers", "welcome"),
    [
        (b"GET", [(b"User-Agent", b"Mozilla/5.0 (X11)")], False),
        (b"HEAD", [(b"user-agent", b"mozilla/4.0")], False),
        (b"GET", [(b"User-Agent", b"claude-cli/2.1.0 (external, cli)")], True),
        (b"GET", [], True),
        (b"POST", [(b"User-Agent", b"Mozilla/5.0 (X11)")], True),
        (b"GET", [(b"User-Agent", b"Mozilla/5.0"), (b"Sec-Fetch-Site", b"same-origin")], True),
        (b"GET", [(b"Sec-Fetch-Mode", b"cors")], True),
        (b"GET", [(b"Sec-Fetch-Mode", b"navigate"), (b"Sec-Fetch-Site", b"none")], False),
        (b"POST", [(b"sec-fetch-mode", b"NAVIGATE")], False),
    ],
)
def test_a_browser_that_does_not_say_for_whom_it_reads_reads_nothing_of_upstreams(
    method: bytes, headers: Headers, welcome: bool
) -> None:
    assert (reads_as_browser(method, headers) is None) == welcome


@pytest.mark.parametrize(
    ("header", "value", "welcome"),
    [
        (b"Origin", b"http://127.0.0.1:8766", True),
        (b"ORIGIN", b"HTTP://127.0.0.1:8766", True),
        (b"Origin", b"null", False),
        (b"Origin", b"", False),
        (b"Origin", b"https://127.0.0.1:8766", False),
        (b"Origin", b"http://127.0.0.1", False),
        (b"Origin", b"http://127.0.0.1:3000", False),
        (b"Origin", b"http://localhost:8766", False),
        (b"Origin", b"http://evil.example", False),
        (b"Origin", b"http://127.0.0.1:8766.evil.example", False),
        (b"Origin", b"http://127.0.0.1:8766/", False),
        (b"Origin", b"http://127.0.0.1:8766 http://evil.example", False),
        (b"Origin", b"file://", False),
        (b"Origin", b"file://127.0.0.1:8766", False),
        (b"Sec-Fetch-Site", b"same-origin", True),
        (b"Sec-Fetch-Site", b"none", True),
        (b"Sec-Fetch-Site", b"same-site", False),
        (b"sec-fetch-site", b"cross-site", False),
        (b"Sec-Fetch-Site", b"", False),
        (b"Sec-Fetch-Mode", b"cors", True),
    ],
)
def test_pages_of_other_origins_are_refused(header: bytes, value: bytes, welcome: bool) -> None:
    reason = foreign(named(b"127.0.0.1:8766", (header, value)), HERE)
    assert (reason is None) == welcome


def test_one_strange_origin_among_several_is_enough() -> None:
    good = (b"Origin", b"http://localhost:8766")
    bad = (b"Origin", b"http://evil.example")
    assert foreign(named(b"localhost:8766", good, good), HERE) is None
    assert foreign(named(b"localhost:8766", good, bad), HERE) is not None
    assert foreign(named(b"localhost:8766", bad, good), HERE) is not None


def test_a_port_that_is_the_schemes_own_may_be_left_out() -> None:
    listen = ListenSettings(port=80)
    assert foreign(named(b"localhost:80", (b"Origin", b"http://localhost")), listen) is None


@given(st.binary(max_size=40))
def test_no_host_but_the_own_ones_is_ever_let_in(host: bytes) -> None:
    plain = host.strip(b" \t").lower()
    name, _, port = plain.rpartition(b":")
    own = (b"127.0.0.1", b"localhost", b"[::1]")
    assume(plain not in own and not (name in own and port.isdigit()))
    assert foreign(named(host), HERE) is not None


@given(st.binary(max_size=40))
def test_no_origin_but_the_own_one_is_ever_let_in(origin: bytes) -> None:
    assume(origin.strip(b" \t").lower() != b"http://localhost:8766")
    assert foreign(named(b"localhost:8766", (b"Origin", origin)), HERE) is not None


@given(st.binary(max_size=30), st.sampled_from((b"Origin", b"x-jackline-token", b"Sec-Fetch-Site")))
def test_no_reason_repeats_what_the_request_said(said: bytes, header: bytes) -> None:
    value = b"planted-" + said
    listen = ListenSettings(token="other")  # noqa: S106 -- no secret
    headers = named(b"localhost", (header, value))
    for reason in (foreign(headers, listen), token_missing(headers, listen)):
        assert reason is None or "planted-" not in reason


@given(st.binary(max_size=300))
def test_of_a_host_nothing_but_a_valid_name_is_repeated(host: bytes) -> None:
    reason = foreign(named(host), HERE) or ""
    repeated = re.search(r'names = \["(.*?)"\]', reason, re.DOTALL)
    assert repeated is None or re.fullmatch(r"[0-9a-z._:-]{1,253}", repeated[1])


def test_without_a_token_in_the_settings_none_is_needed() -> None:
    assert token_missing([], HERE) is None


RIGHT = "s3cret-tökén".encode()
TOKEN = ListenSettings(host="10.0.0.1", token=RIGHT.decode())


@pytest.mark.parametrize(
    ("headers", "welcome"),
    [
        ([(b"x-jackline-token", RIGHT)], True),
        ([(b"X-Jackline-Token", b" " + RIGHT)], True),
        ([], False),
        ([(b"x-jackline-token", b"")], False),
        ([(b"x-jackline-token", RIGHT.upper())], False),
        ([(b"x-jackline-token", RIGHT[:-1])], False),
        ([(b"x-jackline-token", RIGHT + b"x")], False),
        ([(b"x-jackline-tokens", RIGHT)], False),
        ([(b"authorization", RIGHT)], False),
        ([(b"x-jackline-token", b"wrong"), (b"x-jackline-token", RIGHT)], False),
    ],
)
def test_a_token_that_is_set_must_be_sent_exactly(headers: Headers, welcome: bool) -> None:
    reason = token_missing(headers, TOKEN)
    assert (reason is None) == welcome
    assert reason is None or "s3cret" not in reason


@given(st.binary(max_size=20))
def test_no_other_token_opens(token: bytes) -> None:
    assume(token.strip(b" \t") != RIGHT)
    assert token_missing([(b"x-jackline-token", token)], TOKEN) is not None
