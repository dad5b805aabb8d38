"""A compressed answer is unpacked as it comes; what is damaged is the upstream's broken answer."""

from __future__ import annotations

import gzip
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.calls.unpacking import unpacking_for
from jackline.failures import Kind, Observation, classify
from jackline.testing import Step
from jackline.upstream.breaks import BadPackingError
from tests.calls.test_carrier import GOOD, START, World, play

WORDS = b"What was packed. " * 50
PACKED = {"gzip": gzip.compress(WORDS), "x-gzip": gzip.compress(WORDS)}
PACKED |= {"deflate": zlib.compress(WORDS), "GZIP ": gzip.compress(WORDS)}


@given(st.sampled_from(sorted(PACKED)), st.lists(st.integers(0, 400), max_size=8))
def test_how_the_bytes_are_cut_changes_nothing(coding: str, cuts: list[int]) -> None:
    packed = PACKED[coding]
    edges = [0, *sorted(cut % len(packed) for cut in cuts), len(packed)]
    unpacking = unpacking_for(coding)
    assert unpacking is not None
    plain = b"".join(unpacking.feed(packed[start:stop]) for start, stop in pairwise(edges))
    unpacking.end()
    assert plain == WORDS


def test_an_answer_of_several_members_is_unpacked_whole() -> None:
    unpacking = unpacking_for("gzip")
    assert unpacking is not None
    assert unpacking.feed(gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"
    unpacking.end()


@pytest.mark.parametrize("coding", [None, "identity", "br"])
def test_what_is_not_packed_or_cannot_be_read_here_stays_as_it_is(coding: str | None) -> None:
    assert unpacking_for(coding) is None


@given(st.binary(min_size=1, max_size=60))
def test_damage_is_told_as_a_broken_answer_of_the_upstream(junk: bytes) -> None:
    unpacking = unpacking_for("gzip")
    assert unpacking is not None
    with pytest.raises(BadPackingError) as caught:
        unpacking.feed(b"\0" + junk)
    failure = classify(Observation.of_exception(caught.value), now=START)
    assert (failure.kind, failure.sub) == (Kind.TRUNCATED_STREAM, "decode")
    assert failure.retry_same


def test_one_that_ends_before_its_packing_does_is_broken() -> None:
    unpacking = unpacking_for("gzip")
    assert unpacking is not None
    unpacking.feed(PACKED["gzip"][:-1])
    with pytest.raises(BadPackingError):
        unpacking.end()


DAMAGED = gzip.compress(GOOD.says)[:-20] + b"damage that nobody can undo"


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        (Step(says=DAMAGED, headers={"content-encoding": "gzip"}), Kind.TRUNCATED_STREAM),
        (Step(says=DAMAGED[:60], headers={"content-encoding": "gzip"}), Kind.TRUNCATED_STREAM),
        (Step(status=529, body=b"junk", headers={"content-encoding": "gzip"}), Kind.OVERLOADED),
    ],
    ids=["damaged", "cut short", "an error whose words are damaged"],
)
def test_a_call_whose_answer_cannot_be_unpacked_is_tried_again(trouble: Step, kind: Kind) -> None:
    async def scene(world: World) -> None:
        task = world.call()
        await world.until_done([task])
        answer = task.result()
        assert answer.body == GOOD.says
        assert [told.failure and told.failure.kind for told in answer.attempts] == [kind]

    play({"first": [trouble, GOOD]}, scene)
