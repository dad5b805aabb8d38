"""Recognise that money is missing: credits, spend caps, budgets, plans, payments.

Laws: (1) waiting does not help, so nothing here is retried; (2) a code outranks any wording; (3) an
allowance that refills by itself is not money, even when more could be bought (limits.py).
Not here: headers that tell a spend cap (classify.py weighs them).
"""

from __future__ import annotations

from jackline.failures.failure import Kind, Scope
from jackline.failures.rules.rule import Verdict, when

_CREDITS = Verdict(Kind.BILLING, "credits")
_LONG_CONTEXT = Verdict(Kind.BILLING, "long_context_credits", Scope.REQUEST)
_SPEND_CAP = Verdict(Kind.BILLING, "spend_cap")
_PAYMENT = Verdict(Kind.BILLING, "payment")
_PLAN = Verdict(Kind.BILLING, "plan")
_BUDGET = Verdict(Kind.BILLING, "budget")

BILLING = (
    when(
        words="credits_required",
        says=(
            r"long context",
            r"1m context",
        ),
        then=_LONG_CONTEXT,
    ),
    when(
        says=r"(?:extra usage|usage credits?|credits?) (?:is |are )?required for (?:long|1m)",
        then=_LONG_CONTEXT,
    ),
    when(words="enforced_spend_limit_reached billing_hard_limit_reached", then=_SPEND_CAP),
    when(words="budget_exceeded exceededbudget budgetexceedederror", then=_BUDGET),
    when(
        words="credits_required insufficient_quota credit_balance_exhausted"
        " insufficient_user_quota insufficient_credits insufficient_balance"
        " exceeded_current_quota_error pre_consume_token_quota_failed",
        then=_CREDITS,
    ),
    when(words="usage_not_included", then=_PLAN),
    when(words="billing_not_active payment_required invalid_payment", then=_PAYMENT),
    when(
        says=(
            r"(?:spend(?:ing)?|spend control) (?:limit|cap)",
            r"specified (?:workspace )?api usage limits",
            r"monthly api usage threshold",
            r"(?:team|group|org|organi[sz]ation|channel)'s (?:shared )?budget",
            r"usage limit is set to \$0",
            r"org(?:anization)?'s monthly usage limit",
        ),
        unless=(
            r"approaching",
            r"close to",
        ),
        then=_SPEND_CAP,
    ),
    when(words="billing_error", then=_PAYMENT),
    when(
        says=(
            r"budget (?:has been )?exceeded",
            r"exceeded (?:your |the )?budget",
            r"over budget",
        ),
        then=_BUDGET,
    ),
    when(
        says=(
            r"credit balance (?:is )?too low",
            r"insufficient (?:account )?(?:balance|credits?|funds)",
            r"(?:out of|no|not enough) (?:[a-z]{1,10} )?credits\b(?!.{0,14}resets)",
            r"requires? (?:more |usage )?credits",
            r"credits? (?:are|is) (?:depleted|exhausted)",
            r"can only afford",
            r"add funds",
            r"key limit exceeded",
            r"quota is not enough",
            r"balance is not enough",
            r"draws? from (?:your )?extra usage",
            r"\b(?:org|team|account|you) (?:is|are) out of usage\b",
            r"usage credits to continue",
            r"buy more credits",
            r"out of extra usage(?!.{0,60}(?:reset|available at))",
            r"doesn't include usage credits",
            r"额度不足",
            r"余额不足",
            r"quota_not_enough",
        ),
        unless=(
            r"resets? (?:at |on )?(?:\w{3,9} )?\d",
            r"per[- ]day",
            r"available at \d",
        ),
        then=_CREDITS,
    ),
    when(
        says=(
            r"billing (?:to be|must be|is not|isn't|needs to be) (?:enabled|active|set up)",
            r"account is not active",
            r"arrearage",
            r"account is in good standing",
            r"payment.instrument",
            r"payment (?:required|method|information|failed)",
            r"(?:issue|problem) with your billing",
            r"enable billing",
            r"unpaid invoice",
            r"past due",
        ),
        unless=(
            r"rate limit reached",
            r"requests per",
            r"tokens per",
        ),
        then=_PAYMENT,
    ),
    when(says=r"requires an? (?:\w{1,12} )?subscription", then=_PLAN),
    when(
        says=(
            r"upgrade to plus",
            r"plan (?:does not|doesn't) include",
            r"not included in your plan",
            r"(?:to use|using) codex with your chatgpt plan",
        ),
        unless=(
            r"model",
            r"usage limit",
        ),
        then=_PLAN,
    ),
    when(
        says=(
            r"quota exceeded\. check your plan and billing",
            r"check your plan and billing details",
        ),
        provider="openai azure openrouter litellm proxy copilot local network",
        then=_CREDITS,
    ),
    when(
        status=(402,),
        says=(
            r"quota_exceeded",
            r"no quota",
        ),
        then=Verdict(Kind.ACCOUNT_QUOTA, "monthly"),
    ),
    when(status=(402,), provider="copilot", then=Verdict(Kind.ACCOUNT_QUOTA, "monthly")),
    when(status=(402,), then=_PAYMENT),
)
