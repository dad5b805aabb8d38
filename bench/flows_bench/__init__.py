"""Measure durable fan-outs beside each other: cost, replay, and what a kill costs.

Rules: (1) every engine does the same work, in a process of its own; (2) what ran is read in a file
that the work itself writes, never in an engine's own books.
Not here: the command (flows.py).
"""
