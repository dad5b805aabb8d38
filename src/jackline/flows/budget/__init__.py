"""Count what a flow uses and reserve what its calls may cost."""
