"""The face for models: tools over the Model Context Protocol, mounted in the running service.

Laws: (1) the SDK is loaded by the first request, off the event loop: a service that no model asks
pays nothing; (2) a tool's error says what to do next; (3) whoever may order over this face may
start agents, so it takes the control token like every other order.
Not here: the stdio bridge that clients start (quick/mcp_bridge.py), agents (agents/, flows/).
"""
