"""Know whole sentences that vendors say of an account whose limit is used up, and our own for them.

Rules: (1) a sentence is known sign by sign, from its first to its last, or not at all: a longer
text that holds one is not; (2) the only free parts are dates and times of fixed forms, and ids of
an account in sentences that are never repeated; (3) every
vendor's sentence has been observed (the corpora of tests/data/failures, or its source is named).
"""

from __future__ import annotations

import re

from jackline.failures.failure import Failure, Kind
from jackline.failures.sentences import name_of

_AT = (
    r"(?:(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) \d{1,2}(?:,| at) )?"
    r"\d{1,2}(?::\d\d)? ?[ap]m(?: \(UTC\))?"
)
_OF_VENDORS = re.compile(
    r"This request would exceed your account's rate limit\. Please try again later\."
    r"|You['’]ve (?:hit|reached) your (?:session |weekly |5-hour |usage |Opus |Sonnet )?limit"
    rf"(?: [·∙] resets {_AT})?\.?"
    r"|Claude (?:AI |Max |Pro )?usage limit reached(?:\|\d{10}|\. Your limit will reset at "
    rf"{_AT}\.?)?"
    r"|The usage limit has been reached\.?"
    r"|You have reached your specified (?:workspace )?API usage limits\."
    r" You will regain access on \d{4}-\d\d-\d\d at \d\d:\d\d UTC\."
    r"|Your credit balance is too low to access the Anthropic API\.(?: Please go to Plans & Billing"
    r" to upgrade or purchase credits\.)?"
    r"|You exceeded your current quota, please check your plan and billing details\.(?: For more"
    r" information on this error, read the docs:"
    r" https://platform\.openai\.com/docs/guides/error-codes/api-errors\.)?"
    r"|You've reached your weekly \(7-day\) usage limit\. Your quota will reset when the current"
    r" 7-day window ends\. To continue now, purchase extra usage or upgrade your plan:"
    r" https://www\.kimi\.com/membership/subscription\?tab=quota"
)
# With names and numbers of the account in them: they are believed, but never repeated to others.
_OF_VENDORS_WITH_IDS = re.compile(
    r"Your credit balance is too low\."
    r"|Third-party apps now draw from extra usage, not plan limits\. We've added a credit to your"
    r" organization to get you started\. Ask your workspace admin to claim it and keep going\."
    r"|You're out of extra usage\. Add more at claude\.ai/settings/usage and keep going\."
    r"|This API method requires billing to be enabled\. Please enable billing on project #\d{1,20}"
    r" by visiting https://console\.developers\.google\.com/billing/enable\?project=\d{1,20}"
    r" then retry\."
    r" If you enabled billing for this project recently, wait a few minutes for the action to"
    r" propagate to our systems and retry\."
    r"|Insufficient balance\. Manage your billing here:"
    r" https://opencode\.ai/workspace/\w{1,64}/billing"
    r"|your subscription payment is past due\. update your payment method:"
    r" https://ollama\.com/settings/billing \(ref: [0-9a-f-]{36}\)"
    r"|Model requires a Pro subscription; check out hf\.co/pricing to learn more\. Make sure to"
    r" include your HF token in your query\."
    r"|Account [\w.-]{1,64} is suspended, possibly due to reaching the monthly spending limit or"
    r" failure to pay past invoices\. Please go to https://fireworks\.ai/account/billing for more"
    r" information\."
)
_OURS = {
    (Kind.ACCOUNT_QUOTA, "session"): "You've hit your session limit",
    (Kind.ACCOUNT_QUOTA, "weekly"): "You've hit your weekly limit",
    (Kind.ACCOUNT_QUOTA, "weekly_model"): "You've hit your weekly limit for this model",
    (Kind.ACCOUNT_QUOTA, "daily"): "You've hit your limit of requests per day",
    (Kind.ACCOUNT_QUOTA, "monthly"): "You have no quota of requests per month left",
    (Kind.BILLING, "credits"): "The credit balance is too low",
    (Kind.BILLING, "long_context_credits"): "Usage credits are required for long context",
    (Kind.BILLING, "spend_cap"): "The spend limit has been reached",
    (Kind.BILLING, "budget"): "The budget has been exceeded",
    (Kind.BILLING, "plan"): "Your plan does not include this",
}
_OURS_OF_KIND = {
    Kind.ACCOUNT_QUOTA: "You've hit your usage limit",
    Kind.BILLING: "Payment required",
}
_NOTE = " (repeated by Jackline)"
# What the gateway writes behind a sentence without a date, for a call that comes later.
_RESET_BEHIND = re.compile(r" It resets at [\w :,+()/-]{4,60}, in [\w ]{2,40}\.$")


def our_sentence(failure: Failure) -> str:
    """What we say of such a wall in place of a text that is not known."""
    ours = _OURS.get((failure.kind, failure.sub or "")) or _OURS_OF_KIND.get(failure.kind)
    return (ours or name_of(failure).capitalize()) + _NOTE


def is_known_sentence(text: str) -> bool:
    """Whether the whole text is what a vendor, or Jackline, is known to say at a wall."""
    text = _RESET_BEHIND.sub("", text)
    if _OF_VENDORS.fullmatch(text) is not None:
        return True
    ours = text.removesuffix(_NOTE)
    return ours != text and ours in (*_OURS.values(), *_OURS_OF_KIND.values())


def is_vendor_sentence(text: str) -> bool:
    """The same, also where the vendor names the account in it."""
    return is_known_sentence(text) or _OF_VENDORS_WITH_IDS.fullmatch(text) is not None
