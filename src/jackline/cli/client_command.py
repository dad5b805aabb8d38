"""A command line whose words belong to another program.

Laws: (1) our own flags stand in front; the first word that is none of them, and all that follow,
are passed on as they are, `--` and empty words too.
Not here: starting the program (client_start.py).
"""

from __future__ import annotations

import click


class ClientCommand(click.Command):
    """A command with one argument of any number of words, and flags before it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Fence off the other program's words before click looks at them."""
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        ours = {name for option in options for name in option.opts}
        own = 0
        while own < len(args) and args[own] in ours:
            own += 1
        return super().parse_args(ctx, [*args[:own], "--", *args[own:]])
