"""What an upstream gives as the id of an answer is kept only if it is one."""

from __future__ import annotations

import pytest

from jackline.http1.headers import Headers
from jackline.upstream.bounded_answers import SentCredentials, is_request_id
from tests.planted import KEY

SENT: Headers = (
    (b"x-api-key", KEY.encode()),
    (b"Authorization", b"Bearer short-one"),
    (b"x-client-request-id", b"3f2a9c51-1111-4222-8333-444455556666"),
    (b"Idempotency-Key", b"stainless-node-retry-3f2a9c51-1111"),
    (b"User-Agent", b"claude-cli/2.0.0"),
)


@pytest.mark.parametrize(
    "value",
    [
        b"req_011CSHoEeqs5C35K2UUqR7Fy",
        b"3f2a9c51-1111-4222-8333-444455556666",
        b"stainless-node-retry-3f2a9c51-1111",
        b"1-67891233:abc/def+0=.",
        b"r" * 128,
        b"short",
    ],
)
def test_an_id_is_kept(value: bytes) -> None:
    assert is_request_id(value, SentCredentials(SENT))


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"r" * 129,
        b"two words",
        b"req_\xfc",
        b"req\x1b[0m",
        b'{"id":1}',
        KEY.encode(),
        b"req_" + KEY.encode(),
        b"req_" + KEY.encode()[:30],
        b"req_" + KEY.encode()[-20:],
        b"req_short-one_1",
    ],
)
def test_what_is_no_id_or_repeats_a_credential_is_not(value: bytes) -> None:
    assert not is_request_id(value, SentCredentials(SENT))


@pytest.mark.parametrize(("size", "is_kept"), [(3_000, True), (5_000, False)])
def test_of_more_credentials_than_are_compared_no_id_is_kept(size: int, is_kept: bool) -> None:
    sent = SentCredentials(((b"Cookie", b"c" * size), *SENT))
    assert is_request_id(b"req_011CSHoEeqs5C35K2UUqR7Fy", sent) is is_kept
    assert not is_request_id(b"req_" + b"c" * 16, sent)
    assert not is_request_id(b"req_" + KEY.encode()[:30], sent)


def test_every_large_part_of_a_credential_is_found_at_every_place_in_an_id() -> None:
    key, sent = KEY.encode()[:40], SentCredentials(SENT)
    for start in range(len(key) - 15):
        for before in range(20):
            assert not is_request_id(b"_" * before + key[start : start + 16] + b"_" * 9, sent)
        assert is_request_id(b"req_" + key[start : start + 15] + b"_" * 9, sent)
