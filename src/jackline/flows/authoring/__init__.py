"""What the author of a flow calls: `flow`, `agent`, `step`, `parallel` and their context."""
