"""Which proxy the environment names for which address."""

from __future__ import annotations

import pytest

from jackline.upstream import Origin, proxy_from_environment

BOTH = {"HTTPS_PROXY": "http://s.proxy:1", "HTTP_PROXY": "http://p.proxy:2"}


@pytest.mark.parametrize(
    ("url", "environ", "proxy"),
    [
        ("https://a.test", {}, None),
        ("https://a.test", BOTH, "http://s.proxy:1"),
        ("http://a.test", BOTH, "http://p.proxy:2"),
        ("https://a.test", {"https_proxy": "http://low:1", **BOTH}, "http://low:1"),
        ("https://a.test", {"HTTPS_PROXY": "  "}, None),
        ("https://a.test", {"HTTPS_PROXY": "bare:3128"}, "http://bare:3128"),
        ("https://a.test", {"ALL_PROXY": "http://all:1"}, "http://all:1"),
        ("http://127.0.0.1:80", BOTH, None),
        ("http://localhost:80", BOTH, None),
        ("http://[::1]:80", BOTH, None),
    ],
)
def test_the_scheme_picks_the_variable(
    url: str, environ: dict[str, str], proxy: str | None
) -> None:
    assert proxy_from_environment(url, environ) == proxy


@pytest.mark.parametrize(
    ("host", "no_proxy", "is_exempt"),
    [
        ("a.test", "*", True),
        ("a.test", "a.test", True),
        ("a.test", "A.TEST", True),
        ("x.a.test", "a.test", True),
        ("x.a.test", ".a.test", True),
        ("x.a.test", "*.a.test", True),
        ("xa.test", "a.test", False),
        ("a.test", "b.test, a.test", True),
        ("a.test", "b.test,,", False),
        ("a.test:8443", "a.test:8443", True),
        ("a.test", "a.test:8443", False),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("a.test", "10.0.0.0/8", False),
        ("[2001:db8::1]", "2001:db8::/32", True),
        ("[2001:db8::1]", "[2001:db8::1]", True),
        ("[2001:db8::1]", "[2001:db8::1]:443", True),
        ("a.test", "", False),
        ("a.test", ".", False),
        ("a.test", ":443", False),
    ],
)
@pytest.mark.parametrize("name", ["NO_PROXY", "no_proxy"])
def test_exempt_hosts_are_reached_directly(
    host: str, no_proxy: str, is_exempt: bool, name: str
) -> None:
    found = proxy_from_environment(f"https://{host}", {**BOTH, name: no_proxy})
    assert (found is None) is is_exempt


def test_a_password_of_a_proxy_is_never_shown() -> None:
    origin = Origin("https://a.test", proxy="http://me:hunter2@p.test:80")
    assert "hunter2" not in repr(origin)
    assert origin.proxy_credentials == "Basic bWU6aHVudGVyMg=="
    assert origin.proxy_credentials not in repr(origin)
