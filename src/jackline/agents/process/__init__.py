"""Drives another agent program as a child process, and goes on where it left off.

Laws: (1) never two processes in one session; (2) what the program has finished is never asked for
again; (3) an ending is judged by what was seen, not by what the program calls it; (4) whoever
cancels is left with no process behind.
Not here: what differs between programs (claude_code/, codex/).
"""
