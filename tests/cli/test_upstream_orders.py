"""Orders to a gateway that runs: which upstream to use, which lanes to rest."""

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
            assert (answer.code, answer.out) == (0, "calls go by the configuration\n")
            assert call(place.url).status == 200
            assert (len(first.ledger), len(second.ledger)) == (2, 1)

            answer = place.jackline("upstream", "pause", "one/*")
            assert (answer.code, answer.out) == (0, "paused: one/claude-sonnet-4-6\n")
            assert call(place.url).status == 200
            assert (len(first.ledger), len(second.ledger)) == (2, 2)

            told = json.loads(place.jackline("upstream", "ls", "--json").out)
            assert told["gateway"] is True
            lanes = {each["name"]: each["lanes"] for each in told["upstreams"]}
            assert [lane["name"] for lane in lanes["two"]] == ["two/claude-sonnet-4-6"]
            assert "     lane one/claude-sonnet-4-6: " in place.jackline("upstream", "ls").out

            answer = place.jackline("upstream", "resume", "one/*")
            assert (answer.code, answer.out) == (0, "resumed: one/claude-sonnet-4-6\n")

            answer = place.jackline("upstream", "use", "three")
            assert answer.code == 2
            assert "the gateway refuses: there is no upstream 'three'" in answer.err
            assert "next:  use one of: one, two" in answer.err
            assert place.jackline("upstream", "use", "two").code == 0
            assert place.jackline("upstream", "use", "--clear").code == 0
