"""The tools that models may call, one file each.

Laws: (1) each file makes its tools from the ports it is given, and holds no state of its own.
Not here: the protocol around them (server.py).
"""
