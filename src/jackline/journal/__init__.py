"""Durable records of what the gateway did: calls, failed attempts, lanes, notes.

Rules: (1) traffic never waits for a record and never fails for one; (2) no prompt, answer or
credential is recorded, only the fields of events; (3) a killed process loses what came in the last
moment at most, and the file is never damaged.
"""

from jackline.journal.journal import Journal, JournalHealth
from jackline.journal.store import JournalReader, JournalSettings, Totals

__all__ = ["Journal", "JournalHealth", "JournalReader", "JournalSettings", "Totals"]
