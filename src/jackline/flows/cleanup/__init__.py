"""Gives back what was rented and runs what was promised, at every end, crash included.

Rules: (1) hooks run within a time limit, before the flow gets the outcome; (2) what failed is kept,
reported, and tried again by the next process, never hidden; (3) nothing that holds unsaved work is
deleted. A hook runs at least once per ending, each time with the same idempotency key.
Not here: when something ends (execution.py, running.py), the ledger's place (engine.py).
"""
