"""Let the agents of a run wait for room in its budgets, and wake them when there is.

Rules: (1) whoever waits is woken when its request is decided and when the run is interrupted; who
gives up earlier withdraws; (2) every settlement, release and charge goes through here, seconds of
own work included, so that no decision is missed; (3) in memory only: what calls in flight reserve
ends with the process, and what they used counts once they are answered (budgets/ledger.py).
Who asks, and what for: leave.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from jackline.budgets.accounts import Account
from jackline.budgets.budget import Amount
from jackline.budgets.estimates import Estimator
from jackline.budgets.ledger import Demand, Ledger, Request, State


class Reservations:
    """The ledger of one run in one process, with those who wait for it."""

    def __init__(self) -> None:
        self._ledger = Ledger()
        self._waiting: dict[Request, asyncio.Future[None]] = {}
        self.estimates = Estimator()

    def ask(self, accounts: Iterable[Account], demand: Demand) -> Request:
        """A request that is granted or refused, or that `decided` must be awaited for."""
        return self._ledger.ask(accounts, demand)

    async def decided(self, request: Request) -> None:
        """Returns when the request waits no more, or when the run was interrupted.

        Who stops waiting before that has to `withdraw` it.
        """
        if request.state is not State.WAITING:
            return
        self._waiting[request] = asyncio.get_running_loop().create_future()
        try:
            await self._waiting[request]
        finally:
            del self._waiting[request]

    def settle(self, request: Request, actual: Amount, accounts: Iterable[Account]) -> None:
        """The call was answered, and these accounts pay for it."""
        self._wake(self._ledger.settle(request, actual, accounts))

    def release(self, request: Request) -> None:
        """The call was sent and came to no answer."""
        self._wake(self._ledger.release(request))

    def withdraw(self, request: Request) -> None:
        """The call was not sent."""
        self._wake(self._ledger.withdraw(request))

    def charge(self, accounts: Iterable[Account], amount: Amount) -> None:
        """Something was used without a reservation."""
        self._wake(self._ledger.charge(accounts, amount))

    def review(self) -> None:
        """What was used was counted anew, such as in a window that has rolled on."""
        self._wake(self._ledger.review())

    def interrupt(self) -> None:
        """Wake everybody: the run goes no further, and the gate tells them how."""
        self._wake(list(self._waiting))

    def _wake(self, requests: list[Request]) -> None:
        for request in requests:
            waiting = self._waiting.get(request)
            if waiting is not None and not waiting.done():
                waiting.set_result(None)
