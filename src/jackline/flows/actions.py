"""Which clean-up actions can be saved, found again and run: functions, and a model's commands.

Rules: (1) only functions at the top level of a module have a name that another process finds
again: through the flow's file, or through their module; (2) a model's command is saved together
with the folder that it was judged in and the patterns that permit it (`records.AllowedCommand`),
and is signed with the record; (3) it runs in that folder only, is judged again right before it
runs, by those patterns and by the user's of that time, and gets no secret of the process that runs
it. Any other text is a shell command of the user's own flow. cleanup/action_runner.py runs them.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import cast

from jackline.batches.permission import permit
from jackline.batches.policy import Allowed, CallPermission, Denied, Policy
from jackline.batches.shell import ShellTool
from jackline.batches.tool import BatchCall
from jackline.errors import BadArgumentError, UnreadableError
from jackline.flows.flow_sources import check_user_code
from jackline.flows.records import AllowedCommand

_FUNCTION_PREFIX = "function "


def render_action(action: object, flow_module: str) -> str:
    """A hook or release as it is saved: a command, or `function NAME`; UsageError for others."""
    if isinstance(action, str):
        if action.strip():
            return action
    elif callable(action):
        name, module = getattr(action, "__qualname__", ""), getattr(action, "__module__", "")
        if name and getattr(sys.modules.get(module), name, None) is action:
            return (
                f"{_FUNCTION_PREFIX}{name}"
                if module == flow_module
                else f"{_FUNCTION_PREFIX}{module}:{name}"
            )
    raise BadArgumentError(
        f"{getattr(action, '__qualname__', repr(action))} cannot clean up after a crash: "
        "the next process could not find it.",
        hint="Pass a shell command, or a function at the top level of the flow's file.",
    )


def function_name(action: str) -> str | None:
    """The name of the function that an action means; None for a command."""
    return action.removeprefix(_FUNCTION_PREFIX) if action.startswith(_FUNCTION_PREFIX) else None


def find_function(name: str, flow_module: ModuleType | None) -> Callable[..., object]:
    """The function of that name."""
    module_name, _, own = name.rpartition(":")
    if not module_name:
        found = getattr(flow_module, own, None)
    else:
        check_user_code(f"{own}() of {module_name}")
        try:
            found = getattr(import_module(module_name), own, None)
        except ImportError as error:
            raise UnreadableError(f"{module_name} cannot be imported: {error}.") from error
    if not callable(found):
        raise UnreadableError(
            f"There is no function {own}() in {module_name or 'the flow’s file'} any more.",
            hint="Put it back, or release by hand what it would have released.",
        )
    return cast("Callable[..., object]", found)


async def denial(
    command: str, folder: Path, allow: Sequence[str], trusted: tuple[Path, ...] = ()
) -> Denied | None:
    """Why the command may not run in this folder now; None when it may.

    `trusted` are the folders that the user chose, where a model may have chosen `folder`.
    """
    verdict = await _judged(command, folder, allow, trusted)
    return verdict if isinstance(verdict, Denied) else None


async def permitted_words(
    allowed: AllowedCommand, allow_now: Sequence[str]
) -> tuple[str, ...] | str:
    """The words that may run now, without a shell; or why none may any more."""
    folder = Path(allowed.folder)
    if not await asyncio.to_thread(_is_itself, folder):
        return f"not run: the folder {folder} is gone, or a link by now; run it by hand"
    verdict = await _judged(allowed.command, folder, allowed.allow)
    if not isinstance(verdict, Denied):
        # The user may have withdrawn the permission since it was ordered.
        verdict = await _judged(allowed.command, folder, allow_now)
    if isinstance(verdict, Denied):
        return f"not run: {verdict.why}; look at the folder {folder}, then run it by hand"
    return verdict.argv


async def _judged(
    command: str, folder: Path, allow: Sequence[str], trusted: tuple[Path, ...] = ()
) -> CallPermission:
    call = BatchCall("release", ShellTool(), {"command": command})
    verdict = await permit(Policy(folder, tuple(allow), trusted=trusted), call)
    if isinstance(verdict, Allowed) and verdict.guard is not None:
        # It runs later, without the guard, when the repository may say something else.
        return Denied("it starts git", "let the agent itself clean up what git made")
    return verdict


def _is_itself(folder: Path) -> bool:
    """Whether the folder is there, and no link on the way to it leads elsewhere."""
    try:
        return folder.is_dir() and folder.resolve(strict=True) == folder
    except (OSError, RuntimeError):
        return False
