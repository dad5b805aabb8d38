"""Save runs and the results of their calls: the interface `RunStore`, and SQLite behind it."""
