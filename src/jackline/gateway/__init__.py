"""The gateway: any client reaches it through ANTHROPIC_BASE_URL and sees fewer failures.

Rules: (1) same-dialect traffic passes byte for byte; (2) the client's own credentials pass through
untouched and are stored nowhere; (3) no task per call.
Not here: wiring it up (assembly/), settings from files (config/).
"""
