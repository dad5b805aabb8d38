"""Release what was rented and run the promised hooks, at every end, crash included.

Rules: (1) hooks run within a time limit, before the flow gets the outcome; (2) a failed one is
saved, reported, and tried again by the next process, never hidden; (3) nothing that contains
unsaved work is deleted. A hook runs at least once per ending, each time with the same idempotency
key.
"""
