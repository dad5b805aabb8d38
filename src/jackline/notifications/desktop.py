"""Find the command that shows a message on this desktop.

Laws: (1) nothing of a message is ever read as a command: it travels as an argument, or in the
environment where the system's own language would read it; (2) where no such command is, None.
Not here: running it (ways.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from jackline.programs import find_program

Which: TypeAlias = Callable[[str], str | None]

# The words come in as variables, so that nothing in them is read as script.
_MAC = (
    'display notification (system attribute "JACKLINE_NOTE_TEXT")'
    ' with title (system attribute "JACKLINE_NOTE_TITLE")'
)
_WINDOWS = (
    "Add-Type -AssemblyName System.Windows.Forms;"
    "$n = New-Object System.Windows.Forms.NotifyIcon;"
    "$n.Icon = [System.Drawing.SystemIcons]::Information;$n.Visible = $true;"
    "$n.ShowBalloonTip(10000, $env:JACKLINE_NOTE_TITLE, $env:JACKLINE_NOTE_TEXT, 'Info');"
    "Start-Sleep -Seconds 10;$n.Dispose()"
)


@dataclass(frozen=True, slots=True)
class Command:
    """What to run, and with which variables besides the present ones."""

    arguments: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)


def desktop_command(
    title: str, text: str, *, platform: str = sys.platform, which: Which = find_program
) -> Command | None:
    """The command for this system; None where it has none."""
    told = {"JACKLINE_NOTE_TITLE": title, "JACKLINE_NOTE_TEXT": text}
    if platform == "darwin":
        tool = which("osascript")
        return None if tool is None else Command((tool, "-e", _MAC), told)
    if platform == "win32":
        tool = which("powershell") or which("pwsh")
        if tool is None:
            return None
        return Command((tool, "-NoProfile", "-NonInteractive", "-Command", _WINDOWS), told)
    tool = which("notify-send")
    if tool is None:
        return None
    return Command((tool, "--app-name=Jackline", "--icon=dialog-information", "--", title, text))
