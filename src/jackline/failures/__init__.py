"""What went wrong: one pure function from anything observed to one `Failure`.

Rules: (1) only `classify` decides, and no other package looks at a status code or matches a message
text; (2) it never raises and is linear in the size of its input; (3) time is an argument.
Not here: what to do about it (lanes/), finding and connecting transcripts (autopsy/).
"""

from jackline.failures.classify import classify
from jackline.failures.failure import Failure, Kind, Scope
from jackline.failures.observation import Json, Observation, Where

__all__ = ["Failure", "Json", "Kind", "Observation", "Scope", "Where", "classify"]
