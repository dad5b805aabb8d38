"""Execute the calls of a flow: gate, agents, steps, cancellation."""
