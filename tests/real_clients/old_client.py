"""Fetch Claude Code 2.1.197, whose patience differs from that of newer ones.

Rules: (1) it comes from the npm registry by name and is kept in .cache; (2) what cannot be had
fails loudly.
Not here: the newer client, which comes from the package index of Python (clients.py).
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.real_clients.npm_packages import platform_name, unpacked

VERSION = "2.1.197"


def old_claude_binary() -> Path:
    """The older client, downloaded on first use."""
    package = f"@anthropic-ai/claude-code-{platform_name()}@{VERSION}"
    folder = unpacked(package, f"claude-code-{VERSION}")
    binary = folder / "package" / ("claude.exe" if os.name == "nt" else "claude")
    if not binary.exists():
        raise FileNotFoundError(f"the package of {VERSION} brought no {binary.name}")
    binary.chmod(0o755)
    return binary
