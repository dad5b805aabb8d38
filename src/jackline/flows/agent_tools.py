"""Give each runner its tools in the form it takes them: ready to run, or by name.

Laws: (1) our own loop gets only what was asked for; (2) runners that bring their own tools get the
names as they are; (3) what is given by name writes nothing by which a program would be started:
names also come from models (`agents.tools`).
Not here: the tools (batches/), which files those are (closed_files.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

from jackline.batches.tool import Tool
from jackline.errors import BadArgumentError
from jackline.flows.agent_spec import OWN_LOOP, Toolbox

_READY: Mapping[str, tuple[str, str]] = {
    "shell": ("jackline.batches.shell", "ShellTool"),
    "read": ("jackline.batches.files", "ReadTool"),
    "write": ("jackline.batches.files", "WriteTool"),
    "edit": ("jackline.batches.files", "EditTool"),
    "search": ("jackline.batches.search", "SearchTool"),
    "fetch": ("jackline.batches.fetch", "FetchTool"),
}
_WRITING = frozenset(("write", "edit"))


def tools_for(box: Toolbox, runner: str) -> tuple[tuple[Tool, ...], tuple[str, ...] | None]:
    """The tools to hand over and the names to allow; BadArgumentError for an unknown name."""
    if runner != OWN_LOOP:
        return box.tools, box.names
    return (*box.tools, *(_ready(name) for name in box.names or ())), None


def _ready(name: str) -> Tool:
    place = _READY.get(name)
    if place is None:
        known = ", ".join(_READY)
        raise BadArgumentError(f"There is no tool {name!r}.", next=f"Choose from these: {known}.")
    made: Callable[[], Tool] = getattr(import_module(place[0]), place[1])
    if name not in _WRITING:
        return made()
    from jackline.flows.closed_files import ClosedFilesTool  # noqa: PLC0415 -- loads the policy

    return ClosedFilesTool(made())
