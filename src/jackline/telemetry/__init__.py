"""Report on the service to programs: metrics for Prometheus, spans for OTLP.

Rules: (1) no label, name or attribute holds a prompt, an answer or a credential; (2) metrics have
bounded label sets: never the id of a run, session, agent or call; (3) a call pays next to nothing.
"""
