"""What is shown can be used again, and the schema and the documentation say what the code does."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jackline.agents.prices import Price
from jackline.config import toml_writer
from jackline.config.declaration import DEFAULTS, SETTINGS, VARIABLES, declared_in, shown_value
from jackline.config.keys import dotted, undotted
from jackline.config.toml_writer import json_schema
from tests.config.places import Machine

DOCS = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text("utf-8")
REFERENCE = (Path(__file__).parents[2] / "docs" / "reference" / "settings.md").read_text("utf-8")
ROWS = re.findall(r"^\| `([a-zA-Z_.1]+)` \| .+? \| (.+?) \|", REFERENCE, re.MULTILINE)


NAMES = st.text(min_size=1, max_size=9)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    quota=st.integers(0, 10**6),
    body=st.integers(0, 10**9),
    per_minute=st.floats(0.001, 1e9),
    patterns=st.lists(NAMES, max_size=3, unique=True),
    models=st.dictionaries(NAMES | st.sampled_from(["url", "name"]), NAMES, max_size=4),
    tag=NAMES,
)
def test_what_is_shown_reads_back_as_the_same_settings(
    machine: Machine,
    quota: int,
    body: int,
    per_minute: float,
    patterns: list[str],
    models: dict[str, str],
    tag: str,
) -> None:
    own = machine.load(
        flags={
            "hold.quota": quota,
            "limits.body": body,
            "upstream.limits.requests_per_minute": per_minute,
            **{dotted(("upstream", "model_limits", one, "parallel")): 2 for one in patterns},
            "upstream": "http://127.0.0.1:1",
            **{dotted(("upstream", "models", one)): given for one, given in models.items()},
            "never_degrade": [tag, *patterns],
            dotted(("caps", "tags", tag)): 3,
        }
    )
    shown = machine.write(toml_writer.as_toml(own, origins=True), "shown.toml")
    again = machine.load(JACKLINE_CONFIG=str(shown))
    assert again.gateway == own.gateway
    assert list(again.gateway.upstream.model_limits) == list(own.gateway.upstream.model_limits)
    assert list(again.gateway.upstream.models) == list(own.gateway.upstream.models)
    assert (again.state_dir, again.journal) == (own.state_dir, own.journal)


def test_every_value_is_shown_with_where_it_comes_from(machine: Machine) -> None:
    path = machine.write("[hold]\nquota = 3600\n")
    shown = toml_writer.as_toml(machine.load(JACKLINE_PORT="1"), origins=True)
    assert f'quota = "1h"  # {path}:2\n' in shown
    assert "port = 1  # JACKLINE_PORT\n" in shown
    assert 'size = "512MB"  # default\n' in shown
    assert "# token is not set\n" in shown


@given(st.lists(st.text(), min_size=1))
def test_a_dotted_key_reads_back(parts: list[str]) -> None:
    assert undotted(dotted(parts)) == tuple(parts)


def test_the_schema_describes_every_key_and_writes_defaults_as_people_do() -> None:
    schema = json_schema()
    for described in (schema, *schema["$defs"].values()):
        assert described["additionalProperties"] is False
        assert described["description"]
        for name, part in described["properties"].items():
            is_table = "$ref" in part or "$ref" in part.get("items", {})
            assert part.get("description") or is_table, (described["title"], name)
    hold = schema["$defs"]["HoldSettings"]["properties"]
    assert hold["quota"]["default"] == "15m"
    assert "default" not in schema["$defs"]["ListenSettings"]["properties"]["token"]
    assert schema["properties"]["never_degrade"]["default"] == []
    assert "ollama" in schema["$defs"]["UpstreamEntry"]["properties"]["preset"]["enum"]
    assert "null" not in str(schema)


def test_every_key_is_documented_with_its_default_and_no_other_is() -> None:
    documented = {key: default for key, default in ROWS if not key.startswith("prices.")}
    priced = {key.removeprefix("prices.PATTERN.") for key, _ in ROWS if key.startswith("prices.")}
    assert priced == set(declared_in(Price))
    assert len(documented) + len(priced) == len(ROWS)
    assert documented.keys() == {dotted(key) for key in SETTINGS} - {"prices"}
    for key, value in DEFAULTS.items():
        default = documented[dotted(key)]
        if value is None:
            assert default == "none", key
        else:
            assert default == f"`{toml_writer.literal(shown_value(key, value))}`", key


def test_the_documented_example_and_variables_work(machine: Machine) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", DOCS, re.DOTALL)
    machine.write(example)
    config = machine.load()
    assert config.gateway.caps.tags == {"night": 2}
    assert tomllib.loads(example)["hold"]["quota"] == "30m"
    named = set(re.findall(r"`(JACKLINE_[A-Z_]+)[`=]", DOCS)) - {"JACKLINE_CONFIG"}
    assert {"JACKLINE_PORT", "JACKLINE_UPSTREAM", "JACKLINE_STATE"} <= named
    assert named <= VARIABLES.keys()
