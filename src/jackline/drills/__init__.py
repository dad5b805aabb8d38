"""Rehearse incidents with the same agents, once without Jackline and once through it.

Rules: (1) a drill needs no key and no network; (2) the simulated provider's ledger is the evidence,
not the gateway; (3) a drill is data (drill.py), and one harness runs all of them (drill_run.py).
"""
