"""Stand in for a tool that a model called and that does not exist.

Laws: (1) it always fails, and says which tools there are.
Not here: which tools an agent has (agents/).
"""

from __future__ import annotations

from collections.abc import Sequence

from jackline.batches.tool import JsonObject, ToolContext, ToolFailedError, ToolOutput


class MissingTool:
    """Answers a call to a tool that nobody offered."""

    description = "Does not exist."

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name = name
        self.input_schema: JsonObject = {"type": "object"}
        self._known = tuple(known)

    def read_only(self, arguments: JsonObject) -> bool:  # noqa: ARG002 -- for any arguments
        """It does nothing at all."""
        return True

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:  # noqa: ARG002
        """Never: there is nothing to run."""
        known = ", ".join(self._known) or "none"
        raise ToolFailedError(
            f"there is no tool {self.name!r}; the tools are: {known}", ended_by="no such tool"
        )
