"""Keep durable records of what the gateway did: calls, failed attempts, lanes, notes.

Rules: (1) traffic never waits for a record and never fails for one; (2) no prompt, answer or
credential gets in, since only the fields of events do; (3) a killed process loses what came in the
last moment at most, and the file stays whole.
Not here: what the records mean to a person (control/, cli/).
"""

from jackline.journal.journal import Journal
from jackline.journal.reader import JournalReader, Totals
from jackline.journal.sqlite_file import JournalHealth
from jackline.journal.store import JournalSettings

__all__ = ["Journal", "JournalHealth", "JournalReader", "JournalSettings", "Totals"]
