"""Rehearse storms, walls and outages with the same fleet, once bare and once through Jackline.

Rules: (1) a drill needs no key and no network; (2) the simulated provider's ledger is the witness,
not the gateway; (3) what a drill demands stands in it as data.
Not here: the provider (simulator/), the gateway (gateway/), the verb (cli/drill.py).
"""
