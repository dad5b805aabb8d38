"""Budgets: what may be used, what was used, and what calls in flight have reserved of it.

    account = Account("The run", (Budget(tokens=20_000),))
    reservation = ledger.reserve(account.chain(), CallDemand(lambda: {Unit.TOKENS: 900}))
    ledger.settle(reservation, {Unit.TOKENS: 740})

Rules: pure, no I/O and no clock: `now` is an argument. Waiting and parking are the caller's.
"""
