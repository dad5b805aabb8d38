"""Answer the hooks of Claude Code: the truth about sub-agents that died, told to their parents.

Rules: (1) whatever is wrong here, the client goes on: an empty answer changes nothing; (2) a dead
sub-agent is told once, with its cause, what it had finished and how to resume it; (3) nothing of
prompts or answers is kept.
Not here: the process of a hook (quick/hook.py), the files of the plugin (clients/plugin.py).
"""
