"""Gives back what was rented and runs what was promised, at every end, crash included.

Laws: (1) each hook runs at most once per end, within a time limit, before the flow hears of it;
(2) what failed is kept, told, and tried again by the next process, never hidden; (3) nothing that
holds unsaved work is deleted.
Not here: when something ends (execution.py, running.py), the ledger's place (engine.py).
"""
