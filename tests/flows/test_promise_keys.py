"""What an agent is known by: all that changes its answer, and nothing that does not."""

from __future__ import annotations

import pytest

from jackline import Budget
from jackline.flows.agent_spec import AgentSpec, toolbox
from jackline.flows.values import Shape


def depth(place: str) -> float:
    """The depth of the water at a place."""
    return float(len(place))


def key(**said: object) -> str:
    shape = Shape(said.pop("schema", None))
    prompt = str(said.pop("prompt", "look"))
    return AgentSpec(prompt, shape, **said).key()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "said",
    [
        {"prompt": "look again"},
        {"label": "north"},
        {"schema": {"type": "object"}},
        {"schema": {"type": "array"}},
        {"model": "one"},
        {"model": "two"},
        {"system": "Be short."},
        {"runner": "codex"},
        {"cwd": "corner"},
        {"resume": "0b5f"},
        {"continue_from": "0b5f"},
        {"toolbox": toolbox(["read"])},
        {"toolbox": toolbox([depth])},
        {"toolbox": toolbox([{"sea": {"command": "charts"}}])},
        {"toolbox": toolbox([{"sea": {"command": "other charts"}}])},
    ],
)
def test_whatever_changes_the_answer_changes_the_key(said: dict[str, object]) -> None:
    assert key(**said) != key()


def test_no_two_of_these_are_taken_for_each_other() -> None:
    names = ("prompt", "label", "model", "system", "runner", "cwd", "resume", "continue_from")
    keys = [key(**{name: "same words"}) for name in names]
    keys.append(key(toolbox=toolbox(["same words"])))
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    "said",
    [
        {"budget": Budget(turns=3)},
        {"retries": 5},
        {"on_end": ("echo done",)},
        {"class_": "low"},
    ],
)
def test_budgets_retries_hooks_and_class_leave_the_key_as_it_is(said: dict[str, object]) -> None:
    assert key(**said) == key()
