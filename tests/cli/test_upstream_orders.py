"""Orders to a gateway that runs: which upstream to use, which lanes to pause."""

from __future__ import annotations

import json
from pathlib import Path

from jackline.testing import SimulatedProvider
from tests.cli.gateways import Place, call


def test_orders_reach_the_gateway_and_count_from_the_next_call(tmp_path: Path) -> None:
    with SimulatedProvider() as first, SimulatedProvider() as second:
        file = tmp_path / "jackline.toml"
        file.write_text(
            f'[[upstream]]\nname = "one"\nurl = "{first.url}"\n'
            f'[[upstream]]\nname = "two"\nurl = "{second.url}"\n'
        )
        more = {"JACKLINE_UPSTREAM": "", "JACKLINE_CONFIG": str(file)}
        place = Place(tmp_path / "gateway", "", more=more)
        with place.up():
            assert call(place.url).status == 200
            assert (len(first.ledger), len(second.ledger)) == (1, 0)

            answer = place.jackline("upstream", "use", "two", "--model", "claude-*", "--for", "30m")
            assert answer.code == 0, answer.err
            assert answer.out.startswith("calls of models claude-* go to two where they can, until")
            assert call(place.url).status == 200
            assert (len(first.ledger), len(second.ledger)) == (1, 1)

            answer = place.jackline("upstream", "back", "two")
            assert (answer.code, answer.out) == (0, "calls are sent as the configuration says\n")
            assert call(place.url).status == 200
            assert (len(first.ledger), len(second.ledger)) == (2, 1)

            answer = place.jackline("upstream", "pause", "one/*")
            assert (answer.code, answer.out) == (0, "paused: one/claude-sonnet-4-6\n")
            assert call(place.url).status == 200
            assert (len(first.ledger), len(second.ledger)) == (2, 2)

            reported = json.loads(place.jackline("upstream", "ls", "--json").out)
            assert reported["gateway"] is True
            lanes = {each["name"]: each["lanes"] for each in reported["upstreams"]}
            assert [lane["name"] for lane in lanes["two"]] == ["two/claude-sonnet-4-6"]
            assert "     lane one/claude-sonnet-4-6: " in place.jackline("upstream", "ls").out

            answer = place.jackline("upstream", "resume", "one/*")
            assert (answer.code, answer.out) == (0, "resumed: one/claude-sonnet-4-6\n")
            reported = json.loads(place.jackline("upstream", "resume", "one", "--json").out)
            assert reported == {
                "schema": "jackline.upstream-orders/1",
                "lanes": ["one/claude-sonnet-4-6"],
                "paused": False,
                "names": [],
            }

            answer = place.jackline("upstream", "use", "three")
            assert answer.code == 2
            assert "the gateway refuses: there is no upstream 'three'" in answer.err
            assert "hint:  use one of: one, two" in answer.err
            assert place.jackline("upstream", "use", "two").code == 0
            assert place.jackline("upstream", "use", "--clear").code == 0


def test_a_wall_that_was_lifted_early_is_found_out_by_one_call_when_a_person_says_so(
    tmp_path: Path,
) -> None:
    with SimulatedProvider() as provider:
        place = Place(tmp_path, provider.url)
        with place.up():
            provider.quota_wall(resets_in=3600)
            assert call(place.url).status == 429
            provider.heal()
            assert call(place.url).status == 429
            assert len(provider.ledger) == 1, "nobody asks again before the announced reset"

            answer = place.jackline("upstream", "probe", "anthropic")
            assert (answer.code, answer.err) == (0, "")
            assert answer.out == (
                "the next call on anthropic/claude-sonnet-4-6 is sent:"
                " if it is answered, the lane is open again\n"
            )
            assert [call(place.url).status for _ in range(3)] == [200, 200, 200]

            answer = place.jackline("upstream", "probe", "anthropic")
            assert answer.out == "anthropic is not parked: its calls are sent as usual\n"
            assert place.jackline("upstream", "probe", "elsewhere").code == 2


def test_a_probe_that_meets_the_wall_again_leaves_the_lane_parked(tmp_path: Path) -> None:
    with SimulatedProvider() as provider:
        place = Place(tmp_path, provider.url)
        with place.up():
            provider.quota_wall(resets_in=3600)
            assert call(place.url).status == 429
            reported = json.loads(place.jackline("upstream", "probe", "anthropic/*", "--json").out)
            assert reported["probed"] == [{"lane": "anthropic/claude-sonnet-4-6", "sent": False}]
            assert [call(place.url).status for _ in range(3)] == [429, 429, 429]
            assert len(provider.ledger) == 2, "one call was sent, and only one"
            (lane,) = place.status()["lanes"]
            assert lane["state"] == "parked"
