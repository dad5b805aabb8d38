"""Attacks by adversary: repository, page, model, caller, upstream, neighbour, clock, disk.

Rules: (1) a test plays the attack as the adversary would, from outside where that is possible, and
asserts that nothing was gained; (2) every test was seen to fail before its fix; (3) an attack that
is thought of later is added to the module of its adversary.
"""
