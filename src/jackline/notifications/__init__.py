"""Tell a person who is not looking: once for each incident, by the ways that were chosen.

Rules: (1) one message an incident, not one an agent; (2) no prompt, answer, key or token gets into
a message; (3) traffic never waits for a message and never fails for one.
Not here: what holds (assembly/faces.py), faces to look at (dashboard/, cli/).
"""
