"""The interface for models: tools over the Model Context Protocol, in the running service.

Rules: (1) the SDK is loaded by the first request, off the event loop: a service without such
clients pays nothing; (2) a tool's error says what to do next; (3) whoever may use these tools may
start agents, so they need the control token like every other order.
"""
