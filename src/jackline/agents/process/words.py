"""Say in a sentence what went wrong with an agent program, the same way for each.

Laws: (1) a person's sentence holds at most one line of what the program said, redacted.
Not here: judging (claude_code/, codex/).
"""

from __future__ import annotations

from jackline.agents.process.program import Ended
from jackline.batches.processes import told_exit
from jackline.failures import Failure
from jackline.failures.sentences import name_of
from jackline.failures.wording import redact

_SHOWN = 300


def failure_in_words(failure: Failure, text: str | None) -> str:
    """What failed, with the first line of the program's own words."""
    first = (text or "").strip().partition("\n")[0]
    named = name_of(failure)
    return f"{named}: {redact(first)[:_SHOWN]}" if first else named


def exit_in_words(program: str, ended: Ended, when: str) -> str:
    """That the program was gone, how, and the last line of its errors."""
    code = ended.exit_code
    how = "ended" if code is None else told_exit(code)
    last = next((line for line in reversed(ended.errors.splitlines()) if line.strip()), "")
    said = f"; it said: {redact(last.strip())[:_SHOWN]}" if last else ""
    return f"{program} was gone {when} ({how}){said}"
