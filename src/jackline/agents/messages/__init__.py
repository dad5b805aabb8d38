"""The runner `messages`: our own loop over the Messages API, every turn of it durable.

Laws: (1) the notebook is the truth: what an agent knows is folded from its lines, and a resume at
any line goes on as if nothing had happened; (2) an answer is written before it is acted upon, a
tool's beginning before it runs, its end before its result is used; (3) no tool runs twice and no
answer is paid twice, but the one in hand when the process died.
Not here: asking the vendor (gateway_model.py), running tools side by side (batches/).
"""

from jackline.agents.messages.runner import MessagesRunner

__all__ = ["MessagesRunner"]
