"""Play an LLM provider with limits, windows and faults: in memory, or on a loopback port.

Rules: (1) one model, two shells: what the socket does, the model decided; (2) the ledger is the
truth that tests and drills read; (3) bodies and headers are those of real providers.
Not here: when a client should send (lanes/), what an answer means (failures/).
"""
