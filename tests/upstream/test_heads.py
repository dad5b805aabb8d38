"""What goes on the wire before the body, and which headers are passed on."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from jackline.errors import BadArgumentError
from jackline.http1.headers import HOP_BY_HOP, HeaderFilter, Headers, request_lines
from jackline.upstream import Origin, UpstreamRequest

TOKEN = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
names = st.lists(st.sampled_from(TOKEN), min_size=1, max_size=12).map(bytes)
values = st.binary(max_size=20).filter(lambda v: not set(v) & set(b"\r\n\0"))
header_lists = st.lists(st.tuples(names, values), max_size=12)


def head(message: UpstreamRequest, url: str = "https://provider.test") -> bytes:
    lines = request_lines(message.headers)
    return (
        Origin(url).request_heads().render(message.method, message.target, lines, len(message.body))
    )


def end_to_end(headers: Headers) -> list[tuple[bytes, bytes]]:
    return HeaderFilter(HOP_BY_HOP, b"proxy-").split(headers)[0]


@pytest.mark.parametrize(
    "name",
    [
        *(b"Connection", b"keep-alive", b"Proxy-Authorization", b"PROXY-Anything", b"TE"),
        *(b"Trailer", b"Transfer-Encoding", b"upgrade", b"X-Named", b"x-also-named"),
    ],
)
def test_headers_of_the_connection_are_not_passed_on(name: bytes) -> None:
    headers = [
        (b"A", b"1"),
        (b"Connection", b"X-Named, close"),
        (name, b"v"),
        (b"connection", b" x-ALSO-named "),
        (b"b", b"2"),
        (b"a", b"3"),
    ]
    assert end_to_end(headers) == [(b"A", b"1"), (b"b", b"2"), (b"a", b"3")]


@given(headers=header_lists)
def test_all_other_headers_are_kept_in_order_and_spelling(
    headers: list[tuple[bytes, bytes]],
) -> None:
    kept = end_to_end(headers)
    named = {
        token.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for token in value.split(b",")
    } - {b"close", b"keep-alive"}
    assert kept == [
        (name, value)
        for name, value in headers
        if name.lower() not in HOP_BY_HOP | named and not name.lower().startswith(b"proxy-")
    ]
    assert end_to_end(kept) == kept


def test_what_is_remembered_of_names_is_bounded() -> None:
    sieve = HeaderFilter(HOP_BY_HOP)
    headers = [(b"x-%d" % number, b"") for number in range(5000)]
    assert sieve.split(headers)[0] == headers
    assert len(sieve) <= 1024


def test_host_length_and_expect_are_ours() -> None:
    message = UpstreamRequest(
        b"POST",
        b"/v1/messages?beta=true",
        [
            (b"HOST", b"elsewhere"),
            (b"content-length", b"99"),
            (b"Expect", b"100-continue"),
            (b"Transfer-Encoding", b"chunked"),
            (b"X-Api-Key", b"k"),
        ],
        b"12345",
    )
    assert head(message, "https://provider.test:8443/a/b/") == (
        b"POST /a/b/v1/messages?beta=true HTTP/1.1\r\nHost: provider.test:8443\r\n"
        b"X-Api-Key: k\r\nContent-Length: 5\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("method", "body", "has_length"),
    [
        (b"GET", b"", False),
        (b"HEAD", b"", False),
        (b"DELETE", b"", False),
        (b"GET", b"x", True),
        (b"POST", b"", True),
        (b"PUT", b"", True),
        (b"PATCH", b"", True),
    ],
)
def test_a_length_is_told_where_a_body_is_or_is_usual(
    method: bytes, body: bytes, has_length: bool
) -> None:
    assert (b"Content-Length" in head(UpstreamRequest(method, b"/", (), body))) is has_length


@given(
    headers=header_lists,
    bad=st.sampled_from([b"\r", b"\n", b"\0", b"\r\n"]),
    at=st.integers(0, 20),
    in_name=st.booleans(),
)
def test_a_line_end_or_nul_in_any_header_is_refused(
    headers: list[tuple[bytes, bytes]], bad: bytes, at: int, in_name: bool
) -> None:
    name, value = (b"x" + bad + b"y", b"v") if in_name else (b"x-name", b"v" + bad + b"w")
    headers.insert(at % (len(headers) + 1), (name, value))
    assume((name, value) in end_to_end(headers))
    with pytest.raises(ValueError, match="line end"):
        head(UpstreamRequest(b"POST", b"/", headers, b""))


@pytest.mark.parametrize(
    ("method", "target"),
    [
        *(
            (b"GET", target)
            for target in (b"", b"x", b"@evil.test/", b"/a b", b"/\r\n", b"/\n", b"/\0")
        ),
        *((b"GET", target) for target in (b".evil.test/", b"http://evil.test/", b":80/")),
        *((method, b"/") for method in (b"GET /x HTTP/1.1\r\n\r\nGET", b"GET /x", b"G\0")),
    ],
)
def test_a_target_or_method_that_could_mean_another_place_is_refused(
    method: bytes, target: bytes
) -> None:
    with pytest.raises(ValueError, match="line end"):
        head(UpstreamRequest(method, target, (), b""))


@given(headers=header_lists, body=st.binary(max_size=50))
def test_a_head_is_read_back_as_it_was_given(
    headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    written = head(UpstreamRequest(b"POST", b"/t", headers, body))
    first, *lines = written.removesuffix(b"\r\n\r\n").split(b"\r\n")
    assert first == b"POST /t HTTP/1.1"
    read = [tuple(line.split(b": ", 1)) for line in lines]
    ours = (b"host", b"content-length", b"expect")
    assert read[0] == (b"Host", b"provider.test")
    assert read[-1] == (b"Content-Length", b"%d" % len(body))
    assert read[1:-1] == [pair for pair in end_to_end(headers) if pair[0].lower() not in ours]


@pytest.mark.parametrize(
    ("url", "host", "port", "header", "path"),
    [
        ("https://api.anthropic.com", "api.anthropic.com", 443, "api.anthropic.com", ""),
        ("http://127.0.0.1:8080/", "127.0.0.1", 8080, "127.0.0.1:8080", ""),
        ("http://[::1]:81/a/", "::1", 81, "[::1]:81", "/a"),
        ("https://[2001:db8::1]/a%20b", "2001:db8::1", 443, "[2001:db8::1]", "/a%20b"),
        ("https://bücher.example:443", "xn--bcher-kva.example", 443, "xn--bcher-kva.example", ""),
        ("HTTPS://Provider.Test", "provider.test", 443, "provider.test", ""),
    ],
)
def test_an_origin_knows_its_parts(url: str, host: str, port: int, header: str, path: str) -> None:
    origin = Origin(url)
    assert (origin.address.host, origin.address.port) == (host, port)
    assert (origin.address.host_header, origin.path) == (header, path)


@pytest.mark.parametrize(
    "url",
    [
        *("", "provider.test", "ftp://provider.test", "https://", "https://me:pw@provider.test"),
        *("https://provider.test/?q=1", "https://provider.test/#f", "https://provider.test/a b"),
        *("https://provider.test:99999", "https://provider.test:x", "https://[::1", "https://a b/"),
        *("https://" + "x" * 64 + ".test", "https://provider.test/é", "https://a..b"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(BadArgumentError) as told:
        Origin(url)
    assert told.value.hint
    assert "pw" not in f"{told.value}{told.value.hint}"


@pytest.mark.parametrize("proxy", ["https://p.test", "socks5://p.test", "p.test:80", "http://"])
def test_only_plain_http_proxies_are_taken(proxy: str) -> None:
    with pytest.raises(BadArgumentError, match="proxy"):
        Origin("https://provider.test", proxy=proxy)


@pytest.mark.parametrize(
    ("url", "is_loopback"),
    [
        ("http://localhost", True),
        ("http://a.localhost", True),
        ("http://127.8.9.1", True),
        ("http://[::1]", True),
        ("http://10.0.0.1", False),
        ("http://localhost.test", False),
    ],
)
def test_this_machine_is_known_by_name_and_number(url: str, is_loopback: bool) -> None:
    assert Origin(url).address.is_loopback is is_loopback
