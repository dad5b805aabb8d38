"""What went wrong: one pure function from anything observed to one `Failure`.

Rules: (1) `classify` is the only judge, and no other room looks at a status code or matches a
message text; (2) it never raises and stays linear in the size of its input; (3) time comes in.
Not here: what to do about it (lanes/), where transcripts lie and how they hang together (autopsy/).
"""

from jackline.failures.classify import classify
from jackline.failures.failure import Failure, Kind, Scope
from jackline.failures.observation import Json, Observation, Where

__all__ = ["Failure", "Json", "Kind", "Observation", "Scope", "Where", "classify"]
