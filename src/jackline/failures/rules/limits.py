"""Recognise what an account may not use: missing money, used-up quotas, rates and capacity.

Rules: (1) money before quota before rate limit before throttle, so that nothing hopeless is
retried; (2) a code outranks any wording; (3) waiting does not bring money, so nothing of it is
retried; an allowance that refills by itself is not money, even when more could be bought; (4)
"your limit" is a quota, because money has been ruled out before.
Not here: subscription headers, spend caps in headers and the size of a wait (classify.py weighs
them).
"""

from __future__ import annotations

from functools import partial

from jackline.failures.failure import Kind, Scope
from jackline.failures.rules.rule import Verdict, when

_CREDITS = Verdict(Kind.BILLING, "credits")
_LONG_CONTEXT = Verdict(Kind.BILLING, "long_context_credits", Scope.REQUEST)
_SPEND_CAP = Verdict(Kind.BILLING, "spend_cap")
_PAYMENT = Verdict(Kind.BILLING, "payment")
_PLAN = Verdict(Kind.BILLING, "plan")
_BUDGET = Verdict(Kind.BILLING, "budget")

BILLING = (
    when(codes="credits_required", text=(r"long context", r"1m context"), then=_LONG_CONTEXT),
    when(
        text=r"(?:extra usage|usage credits?|credits?) (?:is |are )?required for (?:long|1m)",
        then=_LONG_CONTEXT,
    ),
    when(codes="enforced_spend_limit_reached billing_hard_limit_reached", then=_SPEND_CAP),
    when(codes="budget_exceeded exceededbudget budgetexceedederror", then=_BUDGET),
    when(
        codes="credits_required insufficient_quota credit_balance_exhausted"
        " insufficient_user_quota insufficient_credits insufficient_balance"
        " exceeded_current_quota_error pre_consume_token_quota_failed",
        then=_CREDITS,
    ),
    when(codes="usage_not_included", then=_PLAN),
    when(codes="billing_not_active payment_required invalid_payment", then=_PAYMENT),
    when(
        text=(
            r"(?:spend(?:ing)?|spend control) (?:limit|cap)",
            r"specified (?:workspace )?api usage limits",
            r"monthly api usage threshold",
            r"(?:team|group|org|organi[sz]ation|channel)'s (?:shared )?budget",
            r"usage limit is set to \$0",
            r"org(?:anization)?'s monthly usage limit",
        ),
        unless=(r"approaching", r"close to"),
        then=_SPEND_CAP,
    ),
    when(codes="billing_error", then=_PAYMENT),
    when(
        text=(r"budget (?:has been )?exceeded", r"exceeded (?:your |the )?budget", r"over budget"),
        then=_BUDGET,
    ),
    when(
        text=(
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
        unless=(r"resets? (?:at |on )?(?:\w{3,9} )?\d", r"per[- ]day", r"available at \d"),
        then=_CREDITS,
    ),
    when(
        text=(
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
        unless=(r"rate limit reached", r"requests per", r"tokens per"),
        then=_PAYMENT,
    ),
    when(text=r"requires an? (?:\w{1,12} )?subscription", then=_PLAN),
    when(
        text=(
            r"upgrade to plus",
            r"plan (?:does not|doesn't) include",
            r"not included in your plan",
            r"(?:to use|using) codex with your chatgpt plan",
        ),
        unless=(r"model", r"usage limit"),
        then=_PLAN,
    ),
    when(
        text=(
            r"quota exceeded\. check your plan and billing",
            r"check your plan and billing details",
        ),
        provider="openai azure openrouter litellm proxy copilot local network",
        then=_CREDITS,
    ),
    when(
        status=(402,),
        text=(r"quota_exceeded", r"no quota"),
        then=Verdict(Kind.ACCOUNT_QUOTA, "monthly"),
    ),
    when(status=(402,), provider="copilot", then=Verdict(Kind.ACCOUNT_QUOTA, "monthly")),
    when(status=(402,), then=_PAYMENT),
)


_NO_CREDITS = Verdict(Kind.BILLING, "credits")

_quota = partial(Verdict, Kind.ACCOUNT_QUOTA)
_rate = partial(Verdict, Kind.RATE_LIMIT)
_throttle = partial(Verdict, Kind.SERVER_THROTTLE)

_MODEL_NAMES = r"(?:opus|sonnet|haiku|fable|mythos)(?: \d[\d.]{0,3})?"
_HIT = r"(?:hit|reached|exceeded|used up|exhausted)"
_RESETS_ON_A_DATE = r"resets? (?:at |on )?[a-z]{3,9}\.? \d"

QUOTA = (
    when(text=r"reached ?\| ?1\d{9}", then=_quota("session")),
    when(
        text=rf"out of (?:extra usage|usage credits?).{{0,40}}{_RESETS_ON_A_DATE}",
        then=_quota("weekly_and_overage"),
    ),
    when(
        text=r"out of (?:extra usage|usage credits?).{0,60}(?:resets?|available at) ",
        then=_quota("session_and_overage"),
    ),
    when(
        text=(
            rf"{_MODEL_NAMES} (?:weekly )?limit reached",
            rf"{_HIT} your {_MODEL_NAMES} (?:weekly )?limit",
            rf"{_HIT} your weekly {_MODEL_NAMES} limit",
        ),
        unless=r"now using",
        then=_quota("weekly_model", Scope.MODEL),
    ),
    when(
        text=(
            rf"{_HIT} your (?:weekly|7-day|seven-day)",
            r"(?:weekly|7-day) (?:usage )?limit (?:has been )?reached",
            r"\blimit reached ·? ?resets? [a-z]{3,9}\.? \d",
        ),
        then=_quota("weekly"),
    ),
    when(
        text=(
            rf"{_HIT} your (?:current )?(?:session|5-hour|five-hour|5h)",
            r"(?:session|5-hour|five-hour) limit (?:has been )?reached",
            rf"{_HIT} your limit for claude",
            r"claude (?:ai |max |pro )?usage limit reached",
            r"your limit will reset",
            r"limits will reset",
        ),
        then=_quota("session"),
    ),
    when(
        text=(
            r"premium request",
            r"(?:calls|requests|tokens|messages) ?(?:/|per|a) ?month",
            r"copilot (?:free|monthly|chat messages)",
            r"monthly (?:chat|request|quota)",
        ),
        unless=(r"temporarily", r"wait a (?:moment|few)"),
        then=_quota("monthly"),
    ),
    when(
        text=(
            r"per[- ]day\b",
            r"(?:calls|requests|tokens|messages) ?/ ?day",
            r"\((?:rpd|tpd)\)",
            r"\b(?:rpd|tpd)\b",
            r"free-models-per-day",
            r"per_day\b",
            r"daily (?:[\w.-]{1,30} ){0,2}(?:quota|limit|usage|allowance)",
            rf"{_HIT} your daily",
        ),
        then=_quota("daily"),
    ),
    when(
        text=rf"{_HIT} your (?:[\w.'-]{{1,20}} ){{0,2}}limit.{{0,14}}{_RESETS_ON_A_DATE}",
        then=_quota("weekly"),
    ),
    when(text=rf"{_HIT} your limit\b", then=_quota("unknown_window")),
    when(
        text=(
            rf"{_HIT} your (?:[\w.'-]{{1,20}} ){{0,4}}(?:limit|allowance|quota)",
            r"usage limit (?:has been )?(?:reached|exceeded)",
            r"limit reached ·? ?resets",
            r"(?:you )?have no quota",
            r"使用上限",
            r"限额",
            r"monthly (?:usage )?(?:limit|quota)",
        ),
        unless=(
            r"rate limit",
            r"(?:exceeded|over) your current quota",
            r"tokens per",
            r"requests per",
            r"per min",
        ),
        then=_quota("unknown_window"),
    ),
    when(codes="usage_limit_reached usage_limit_exceeded", then=_quota("unknown_window")),
    when(codes="quota_exceeded", then=_quota("monthly")),
    when(codes="servicequotaexceededexception", then=_quota("service_quota")),
)

# Limits on a subscription or project that say "quota" but refill by the minute, and the reverse.
PROJECT_QUOTA = (
    # With a wait: short is a limit per minute, long is corrected to a window by classify.
    when(
        text=(r"exhausted your capacity on this model", r"quota will reset (?:after|in) \d"),
        then=_rate(None, Scope.MODEL),
    ),
    when(
        text=(r"limit: 0\b", r"quota_limit_value\W{1,5}0\b"),
        codes="resource_exhausted",
        then=Verdict(Kind.BILLING, "zero_quota", Scope.MODEL),
    ),
    when(
        text=r"quota exceeded for (?:metric|quota metric|aiplatform|quota).{0,200}token",
        then=_rate("tpm", Scope.MODEL),
    ),
    when(
        text=r"quota exceeded for (?:metric|quota metric|aiplatform|quota)",
        then=_rate("rpm", Scope.MODEL),
    ),
    when(
        text=r"exceeded your current quota",
        provider="vertex gemini google",
        unless=r"retry in \d",
        then=_quota("daily"),
    ),
    when(text=r"exceeded your current quota.{0,900}retry in \d", then=_rate("tpm", Scope.MODEL)),
    when(text=r"exceeded your current quota", then=_NO_CREDITS),
)

SHARED_CAPACITY = (
    when(
        text=(
            r"high demand",
            r"peak load",
            r"上游负载",
            r"饱和",
            r"(?:resource|capacity) (?:has been )?exhausted",
            r"capacity (?:issue|constraint)",
        ),
        status=(429,),
        unless=(
            r"request rejected",
            r"quota exceeded for",
            r"at capacity",
            r"not your usage limit",
        ),
        then=_throttle("shared_capacity"),
    ),
)

RATE = (
    when(
        text=(
            r"request too large for",
            r"input or output tokens must be reduced",
            r"request (?:is )?larger than the (?:token )?limit",
        ),
        status=(413, 429),
        then=Verdict(Kind.INVALID_REQUEST, "request_too_large", failover_helps=True),
    ),
    when(codes="ramp_limit_exceeded", then=_throttle("ramp", Scope.ACCOUNT)),
    when(
        text=(r"usage increase rate", r"acceleration limit", r"ramp limit"),
        then=_throttle("ramp", Scope.ACCOUNT),
    ),
    when(codes="slow_down", then=_throttle("ramp", Scope.ACCOUNT)),
    when(text=r"too many connect attempts", then=_throttle("proxy_connect_limit")),
    when(text=(r"not your usage limit", r"temporarily limiting requests"), then=_throttle()),
    when(
        text=(
            r"accounts? (?:are |is )?temporarily rate[- ]limited",
            r"receiving too many requests",
        ),
        then=_throttle(),
    ),
    when(
        text=(r"concurren(?:t|cy)", r"parallel request", r"simultaneous", r"too many connections"),
        status=(429,),
        then=_rate("concurrency"),
    ),
    when(
        text=r"concurrent (?:connections|requests?).{0,40}(?:rate )?limit",
        then=_rate("concurrency"),
    ),
    when(
        text=(
            r"no deployments available",
            r"deployments? .{0,40}in cooldown",
            r"cooling down",
            r"all \d{1,4} (?:active )?accounts rate limited",
        ),
        then=_rate("router_cooldown", Scope.MODEL),
    ),
    when(codes="all_deployments_in_cooldown", then=_rate("router_cooldown", Scope.MODEL)),
    when(
        text=r"resource[ _]?(?:has been )?exhausted",
        unless=(r"quota exceeded for", r"quotaid", r"system memory"),
        then=_throttle("shared_capacity"),
    ),
    when(
        text=(
            r"error from provider",
            r"provider returned error",
            r"temporarily rate-limited",
            r"rate-?limited upstream",
            r"upstream (?:is )?rate",
        ),
        status=(429,),
        then=_throttle(None, Scope.MODEL),
    ),
    when(
        text=(r"input tokens? per min", r"number of (?:request|input) tokens"), then=_rate("itpm")
    ),
    when(text=(r"output tokens? per min", r"number of output tokens"), then=_rate("otpm")),
    when(text=r"too many tokens", then=_rate("tpm", Scope.MODEL)),
    when(
        text=(r"tokens? per min", r"\btpm\b", r"token rate limit", r"tokens/min"), then=_rate("tpm")
    ),
    when(text=r"number of tokens allowed", status=(429,), then=_rate("tpm")),
    when(
        text=r"too many requests, please wait before",
        codes="throttlingexception",
        then=_rate("rpm", Scope.MODEL),
    ),
    when(codes="throttlingexception throttledexception", then=_rate(None, Scope.MODEL)),
    when(
        text=(
            r"requests? per (?:min|sec)",
            r"rate limit specific to",
            r"\brpm\b",
            r"call rate limit",
            r"number of requests",
            r"requests/min",
        ),
        then=_rate("rpm"),
    ),
    when(
        codes="rate_limit_exceeded rate_limit_reached_error ratelimiterror requests tokens",
        status=(429,),
        unless=r"^(?:api error: )?rate limit (?:reached|exceeded)\.?$",
        then=_rate(None),
    ),
    when(text=r"provisioned throughput", status=(429,), then=_rate("provisioned")),
    when(
        text=(r"wait a (?:moment|few)", r"rate-limited", r"rate limit exceeded"),
        provider="copilot",
        then=_throttle(None, Scope.ACCOUNT),
    ),
    when(codes="rate_limited rate_limit", provider="copilot", then=_throttle(None, Scope.ACCOUNT)),
    when(
        text=(
            r"request rejected \(429\)",
            r"your (?:[\w-]{1,20} )?(?:organi[sz]ation's |account's )?rate limit",
            r"rate limit (?:is |was |has been )?(?:reached|exceeded)(?: for|\.|!|:|,| in|$)",
            r"ratelimit(?:ed|reached)",
            r"exceeded (?:the |your )?(?:[\w-]{1,20} )?rate limit",
            r"rate limit of",
            r"per-minute",
        ),
        unless=(r"^(?:api error: )?rate limit (?:reached|exceeded)\.?$", r"exceeded retry limit"),
        then=_rate(None),
    ),
)
