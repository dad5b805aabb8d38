"""Turn Anthropic's thinking settings into one of the levels of effort that a target knows.

Laws: (1) a level that the target does not know becomes the nearest one below, or the lowest; with a
note; (2) a budget of tokens becomes a level, with a note; (3) nothing asked, nothing sent.
Not here: thoughts in the conversation (content.py).
"""

from __future__ import annotations

from jackline.dialects.neutral.account import CannotSayError, Fields, Notes, shown

LEVELS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_MEDIUM_FROM = 4_096
_HIGH_FROM = 16_384


def read_effort(thinking: Fields | None, effort: str | None, effort_at: str) -> str | None:
    """The level that is wished for; None when the model shall decide."""
    if effort is not None and effort not in LEVELS:
        raise CannotSayError(effort_at, f"an effort of {shown(effort)}")
    if thinking is None:
        return effort
    kind = thinking.needed_text("type")
    budget = thinking.count("budget_tokens")
    thinking.let_go("display", "what is shown of foreign reasoning is set in the gateway")
    thinking.let_go("block_binding", "thoughts are not bound here")
    thinking.close()
    notes, where = thinking.notes, thinking.path("type")
    match kind:
        case "disabled":
            notes.add(where, "told as the lowest effort")
            return "none"
        case "enabled" if effort is None and budget is not None:
            notes.add(thinking.path("budget_tokens"), "told as a level of effort")
            notes.add(where, "told as a level of effort")
            return _level_of(budget)
        case "enabled" | "adaptive" | "between_tools":
            notes.add(where, "the other side decides by itself when it thinks")
            if budget is not None:
                notes.add(thinking.path("budget_tokens"), "the asked effort stands for it")
            return effort
        case _:
            raise CannotSayError(where, f"thinking of type {shown(kind)}")


def _level_of(budget: int) -> str:
    if budget < _MEDIUM_FROM:
        return "low"
    return "medium" if budget < _HIGH_FROM else "high"


def known_effort(wish: str | None, known: tuple[str, ...], notes: Notes) -> str | None:
    """The level to send."""
    if wish is None or wish in known:
        return wish
    if not known:
        notes.add("output_config.effort", "the other side has no levels of effort")
        return None
    rank = LEVELS.index(wish)
    below = [level for level in known if level in LEVELS and LEVELS.index(level) <= rank]
    nearest = below[-1] if below else known[0]
    notes.add("output_config.effort", f"{wish} is not known there; {nearest} was asked instead")
    return nearest
