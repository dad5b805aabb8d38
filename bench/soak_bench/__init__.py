"""Parts of the soak: the provider, faults, the gateway's process, agents, runs, and the verdict."""
