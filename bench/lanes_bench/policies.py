"""List every policy by the name under which the table shows it.

Rules: (1) names are stable: results are compared by them; (2) the oracle is not here, since it is
what all others are divided by.
Not here: what the policies do.
"""

from __future__ import annotations

from lanes_bench.impatient import ClaudeCode, LiteLlmRouter, OfficialSdk
from lanes_bench.jackline_policy import Jackline, JacklineExact, JacklineFifo, JacklineUncached
from lanes_bench.patient import FixedSecond, FullJitter
from lanes_bench.shared import AwsAdaptive, Gate
from lanes_bench.stage import PolicyMaker

POLICIES: dict[str, PolicyMaker] = {
    "fixed1s": FixedSecond,
    "sdk": OfficialSdk,
    "claudecode": ClaudeCode,
    "fulljit60": FullJitter,
    "aws_adaptive": AwsAdaptive,
    "litellm": LiteLlmRouter,
    "gate": Gate,
    "jackline_fifo": JacklineFifo,
    "jackline_uncached": JacklineUncached,
    "jackline": Jackline,
    "jackline_exact": JacklineExact,
}
OURS = ("jackline_fifo", "jackline", "jackline_exact")
QUICK_CACHED = ("claudecode", "jackline_uncached", "jackline", "jackline_exact")
QUICK = ("claudecode", "gate", "jackline", "jackline_exact")
