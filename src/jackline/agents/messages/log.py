"""Write an agent's notebook and know, at the same time, where it stands.

Laws: (1) what is known here is what folding the notebook would give, line by line; (2) a line is
durable before it counts.
Not here: the fold (conversation.py), where notebooks are kept (flows/).
"""

from __future__ import annotations

from jackline.agents.messages.conversation import Conversation, conversation
from jackline.agents.ports import Notebook
from jackline.agents.task import JsonObject


class Log:
    """A notebook and the conversation in it."""

    def __init__(self, notebook: Notebook) -> None:
        self._notebook = notebook
        self.talk: Conversation = conversation(notebook.entries)

    async def write(self, kind: str, data: JsonObject) -> None:
        """Add a line; it is durable, and counts, when this returns."""
        await self._notebook.write(kind, data)
        self.talk.take(kind, data)

    def jot(self, kind: str, data: JsonObject) -> None:
        """Add a line that need not be waited for."""
        self._notebook.jot(kind, data)
        self.talk.take(kind, data)
