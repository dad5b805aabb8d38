"""Addresses of this machine: loopback in the plain way of writing it, and nothing else."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.local_address import authority_of, host_and_port, is_loopback, local_url


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost"])
def test_loopback_is_known(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    ["::", "10.0.0.1", "example.org", "", "localhost.evil", "127.1", "127.0.0.01", "0177.0.0.1"],
)
def test_anything_else_is_not_loopback(host: str) -> None:
    assert not is_loopback(host)


@given(st.ip_addresses().map(str) | st.from_regex(r"127(\.[0-9]{1,3}){3}", fullmatch=True))
def test_no_address_is_loopback_that_is_another_to_the_standard_library(host: str) -> None:
    if is_loopback(host):
        assert ipaddress.ip_address(host).is_loopback


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:1"),
        ("0.0.0.0", "http://127.0.0.1:1"),  # noqa: S104 -- not listened on
        ("::", "http://[::1]:1"),
    ],
)
def test_a_gateways_own_address_is_read_as_it_is_written(host: str, url: str) -> None:
    assert local_url(host, 1) == url
    assert url == f"http://{authority_of(*host_and_port(url))}"
