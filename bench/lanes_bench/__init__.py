"""Compare lane-control policies on a virtual clock, against an oracle that knows everything.

Rules: (1) a seed fixes the workload, the provider and every draw; (2) every policy meets the same
work and the same weather; (3) what was useful and what was wasted is counted where it is sent.
Not here: the provider itself (jackline.simulator), the controller under test (jackline.lanes).
"""
