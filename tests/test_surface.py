"""What `import jackline` shows is a promise, so it is pinned."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import jackline


def test_the_public_names_are_these_and_no_more_than_sixteen() -> None:
    assert jackline.__all__ == [
        "FlowError",
        "GaveUpError",
        "InternalError",
        "JacklineError",
        "RefusedError",
        "UpstreamError",
        "UsageError",
        "__version__",
    ]
    assert len(jackline.__all__) <= 16
    assert dir(jackline) == sorted(jackline.__all__)


def test_every_public_name_can_be_fetched() -> None:
    for name in jackline.__all__:
        assert getattr(jackline, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        jackline.__getattr__("nonsense")


def test_errors_are_made_the_same_way() -> None:
    assert str(inspect.signature(jackline.JacklineError)) == (
        "(message: 'str', *, next: 'str' = '', retry_at: 'datetime | None' = None,"
        " sent: 'Sent' = 'no', attempts: 'Sequence[str]' = ()) -> 'None'"
    )


def test_importing_loads_no_third_party_module() -> None:
    program = (
        "import sys; before = set(sys.modules); import jackline; "
        "print(*sorted({m.split('.')[0] for m in set(sys.modules) - before}))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    names = loaded.stdout.decode().split()
    assert [n for n in names if n not in sys.stdlib_module_names and n != "jackline"] == []
