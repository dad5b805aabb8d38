"""The built-in flow, in a folder of its own because it is loaded by its path.

Rules: (1) nothing else is here: whoever loads a flow by path can import its neighbours.
"""
