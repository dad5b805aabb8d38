"""Keep agents of a low class back while the account's window is nearly used up.

Laws: (1) what is waited for is told with its end; (2) whether it still holds is asked now and then:
a window may be refilled early; (3) nobody who has begun is kept back.
Not here: which classes and from when on (settings.py: Reserve), parked runs (gate.py).
"""

from __future__ import annotations

from jackline.flows.execution import Execution
from jackline.flows.progress import AgentWaits
from jackline.flows.records import CallRecord

_LOOK_AGAIN = 60.0


async def kept_back(run: Execution, call: CallRecord, class_: str | None) -> None:
    """Returns when an agent of this class may start, as far as the run's reserve is concerned."""
    reserve = run.settings.reserve
    if reserve is None or class_ not in reserve.classes:
        return
    while True:
        used = await run.host.window_used()
        now = run.clock.wall()
        if used is None or used[0] < reserve.share or used[1] <= now:
            break
        why = f"{used[0]:.0%} of the account's window is used, and the rest is kept for others"
        run.tell(AgentWaits(now, call.task_id, call.label, why, used[1]))
        await run.clock.sleep(min(_LOOK_AGAIN, used[1] - now))
    run.tell(AgentWaits(run.clock.wall(), call.task_id, call.label, "", None))
