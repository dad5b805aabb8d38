"""The built-in flow, in a folder of its own since it is loaded by its path.

Laws: (1) nothing else stands here: whoever loads a flow by path can import what lies beside it.
Not here: who starts it (agent_desk.py).
"""
