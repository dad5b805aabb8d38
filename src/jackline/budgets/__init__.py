"""What may be used, what has been used, and what calls in flight have reserved of it.

    account = Account("The run", (Budget(tokens=20_000),))
    request = ledger.ask(account.chain(), Demand(lambda: {Unit.TOKENS: 900}))
    ledger.settle(request, {Unit.TOKENS: 740})

Rules: pure, no I/O and no clock: `now` is an argument. Waiting and parking are the caller's.
"""
