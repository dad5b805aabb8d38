"""Add up what a provider charges: tokens by kind, and dollars.

Rules: (1) tokens of a model without a listed price are counted and never priced; (2) sums only:
nothing is kept of a single request.
Which requests are charged is in ledger.py, prices are in vendor_facts.py.
"""

from __future__ import annotations

from collections import Counter

from jackline.simulator.vendor_facts import price_of


class Bill:
    """A running bill."""

    def __init__(self) -> None:
        self.dollars = 0.0
        self.tokens: Counter[str] = Counter()
        self.unpriced: Counter[str] = Counter()
        """Tokens of models without a listed price, by model."""

    def add(
        self,
        model: str,
        *,
        plain: int = 0,
        read: int = 0,
        written_5m: int = 0,
        written_1h: int = 0,
        output: int = 0,
    ) -> None:
        """Charge one answer."""
        self.tokens.update(
            input=plain,
            cache_read=read,
            cache_write_5m=written_5m,
            cache_write_1h=written_1h,
            output=output,
        )
        price = price_of(model)
        if price is None:
            self.unpriced[model] += plain + read + written_5m + written_1h + output
            return
        self.dollars += price.dollars(
            plain=plain, read=read, written_5m=written_5m, written_1h=written_1h, output=output
        )

    @property
    def read_share(self) -> float:
        """The share of the input that was read from prompt caches; 0 without input."""
        whole = self.tokens.total() - self.tokens["output"]
        return self.tokens["cache_read"] / whole if whole else 0.0

    def to_json(self) -> dict[str, object]:
        """The bill, ready for JSON."""
        return {
            "dollars": round(self.dollars, 6),
            "tokens": dict(self.tokens),
            "read_share": round(self.read_share, 4),
            "unpriced": dict(sorted(self.unpriced.items())),
        }
