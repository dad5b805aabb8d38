"""What `import jackline` shows is a promise, so it is pinned."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import jackline


def test_the_public_names_are_these_and_no_more_than_sixteen() -> None:
    assert jackline.__all__ == [
        "Batch",
        "Budget",
        "FlowError",
        "JacklineError",
        "Outcome",
        "UsageError",
        "__version__",
        "agent",
        "batch",
        "ctx",
        "flow",
        "parallel",
        "phase",
        "resume",
        "run",
        "step",
    ]
    assert len(jackline.__all__) <= 16
    assert dir(jackline) == sorted(jackline.__all__)


def test_every_public_name_can_be_fetched() -> None:
    for name in jackline.__all__:
        assert getattr(jackline, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        jackline.__getattr__("nonsense")


def test_type_checkers_know_the_same_names() -> None:
    stub = Path(jackline.__file__).with_suffix(".pyi").read_text("utf-8")
    named = re.findall(r" as (\w+)$", stub, re.MULTILINE)
    assert sorted([*named, "__version__"]) == jackline.__all__


def test_errors_are_made_the_same_way() -> None:
    assert str(inspect.signature(jackline.JacklineError)) == (
        "(message: 'str', *, hint: 'str' = '', retry_at: 'datetime | None' = None,"
        " private: 'str' = '') -> 'None'"
    )


_AGENT = (
    "(prompt, *, schema=None, model=None, tools=None, system=None, runner=None, label='', cwd=None,"
    " budget=None, max_tokens=None, timeout=None, deadline=None, retries=1, resume=None,"
    " continue_from=None, on_end=None, class_=None)"
)


_BUDGET = (
    "(tokens=None, dollars=None, agents=None, turns=None, seconds=None, window=None, strict=False)"
)


@pytest.mark.parametrize(
    ("name", "signature"),
    [
        ("agent", _AGENT),
        ("flow", "(function=None, /, *, name=None, budget=None, on_end=None)"),
        ("parallel", "(calls, *, limit=None)"),
        ("phase", "(name)"),
        ("resume", "(run_id, *, settings=None, flow=None, host=None, listener=None, only=None)"),
        ("run", "(flow, /, *args, settings=None, host=None, listener=None, **kwargs)"),
        ("step", "(function, /, *args, **kwargs)"),
        ("Budget", _BUDGET),
    ],
)
def test_the_words_of_flows_are_called_the_same_way(name: str, signature: str) -> None:
    shown = inspect.signature(getattr(jackline, name))
    bare = [p.replace(annotation=p.empty) for p in shown.parameters.values()]
    assert str(inspect.Signature(bare)) == signature


def test_importing_loads_no_third_party_module() -> None:
    program = (
        "import sys; before = set(sys.modules); import jackline; "
        "print(*sorted({m.split('.')[0] for m in set(sys.modules) - before}))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    names = loaded.stdout.decode().split()
    assert [n for n in names if n not in sys.stdlib_module_names and n != "jackline"] == []
