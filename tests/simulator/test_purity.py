"""The model and everything it imports use no clock, no socket and no file."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

SHELL = {
    "asyncio", "http", "os", "pathlib", "select", "signal", "socket", "subprocess", "sys",
    "threading", "time", "urllib", "jackline.clock",
}  # fmt: skip
PURE = ("provider", "reply_script", "anthropic_wire", "openai_wire", "client_request")


def imports_of(module: str) -> set[str]:
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise AssertionError(f"{module} is gone")
    found: set[str] = set()
    for node in ast.walk(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def test_the_model_touches_no_clock_no_socket_and_no_file() -> None:
    seen: set[str] = set()
    modules = {f"jackline.simulator.{name}" for name in PURE}
    while modules:
        module = modules.pop()
        seen.add(module)
        imported = imports_of(module)
        assert not imported & SHELL, module
        modules |= {one for one in imported if one.startswith("jackline.")} - seen
    assert "jackline.simulator.limits" in seen
