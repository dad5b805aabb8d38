"""The tools that models may call.

Rules: (1) each file builds its tools from the ports that it gets, and holds no state of its own.
"""
