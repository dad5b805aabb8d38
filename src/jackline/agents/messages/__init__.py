"""The runner `messages`: our own loop over the Messages API, with every turn durable.

Rules: (1) the log is the truth: an agent's state is folded from its entries, and a resume at any
entry continues as if nothing had happened; (2) an answer is logged before the agent acts on it, a
tool's start before it runs, its end before its result is used; (3) no tool runs twice and no answer
is paid twice, except the one in progress when the process died.
"""

from jackline.agents.messages.runner import MessagesRunner

__all__ = ["MessagesRunner"]
