"""Hold what most drills demand.

Laws: (1) values only.
Not here: what a single drill demands (catalogue.py, other_upstreams.py).
"""

from __future__ import annotations

from jackline.drills.drill import Demand

NOBODY_MISLED = Demand("nobody takes a broken answer for a whole one", "misled", most=0)
ALL_FINISH = (Demand("every agent finishes", "left_behind", most=0), NOBODY_MISLED)
NO_ERROR_SEEN = Demand("no agent sees an error", "errors_seen", most=0)
ALL_BOUND = Demand("every tool's result reaches the model under its own call", "misbound", most=0)
