"""Recognise that the caller is not let in: keys, tokens, logins, organisations.

Laws: (1) a person has to act, unless the text says that it heals by itself; (2) a border or
firewall that answers 403 is not a matter of credentials (network.py).
Not here: models that an account may not use (refusals.py).
"""

from __future__ import annotations

from jackline.failures.failure import Kind, Scope
from jackline.failures.rules.rule import Verdict, when


def _auth(sub: str, *, scope: Scope | None = None, retry_same: bool | None = None) -> Verdict:
    return Verdict(Kind.AUTH, sub, scope, retry_same)


HEALING_AUTH = (
    when(
        says=(
            r"temporary network issue",
            r"service disruption",
            r"authentication service (?:is )?(?:down|unavailable)",
        ),
        status=(401, 403),
        then=_auth("transient", retry_same=True),
    ),
    when(
        says=r"try again (?:after|in) \d{1,2} minutes?",
        status=(403,),
        then=_auth("propagation", scope=Scope.MODEL, retry_same=True),
    ),
)

AUTH = (
    when(words="verification_required", then=_auth("verification")),
    when(
        says=(
            r"organi[sz]ation (?:has been|is|was) disabled",
            r"disabled organi[sz]ation",
            r"account (?:has been|is|was) (?:disabled|suspended|deactivated|on hold|banned)",
        ),
        then=_auth("org_disabled"),
    ),
    when(
        words="organization_on_hold account_on_hold organization_type_not_supported"
        " claude_code_key_creator_not_member oauth_org_not_allowed",
        then=_auth("org_disabled"),
    ),
    when(
        says=(
            r"(?:currently )?not allowed for this organi[sz]ation",
            r"organi[sz]ation has disabled",
            r"no longer a member",
            r"not (?:a )?member of (?:the |this )?organi[sz]ation",
            r"not been granted",
            r"does not have access to claude",
            r"organi[sz]ation (?:does not|doesn't) (?:have|allow)",
            r"ask your admin",
            r"only authorized for use with",
        ),
        then=_auth("org_policy"),
    ),
    when(words="ftuformnotfilled", then=_auth("onboarding", scope=Scope.MODEL)),
    when(says=r"revoked", then=_auth("revoked")),
    when(
        says=(
            r"(?:token|session|login|credentials?|key)\b.{0,30}(?:has |have |is |are )?expired",
            r"expiredtoken",
            r"refresh token (?:was|has)",
            r"login expired",
            r"session expired",
            r"token is expired",
        ),
        then=_auth("expired"),
    ),
    when(words="expiredtokenexception expiredtoken token_expired", then=_auth("expired")),
    when(
        says=(
            r"not logged in",
            r"no api key",
            r"missing (?:api key|authentication|bearer|credentials)",
            r"api key (?:is )?(?:missing|required)",
            r"(?:could not|unable to) (?:load|locate|find|resolve) (?:\w{1,9} )?(?:cred|auth)",
            r"didn't provide an api key",
            r"no auth(?:entication)? (?:credentials|method|header)",
            r"please run /login",
            r"credentials (?:not found|were not found)",
            r"apikeyhelper",
            r"no cookie auth",
            r"must provide an api key",
        ),
        unless=(
            r"invalid api key",
            r"revoked",
            r"expired",
            r"does not have access",
            r"request not allowed",
            r"403",
        ),
        then=_auth("missing"),
    ),
    when(
        says=(
            r"scope requirement",
            r"required scopes?",
            r"insufficient (?:scope|permission)",
            r"lacks required",
        ),
        then=_auth("scope"),
    ),
    when(
        words="authentication_error invalid_api_key unrecognizedclientexception"
        " invalidsignatureexception api_key_invalid unauthenticated authentication_failed"
        " token_not_found_in_db auth_error invalid_token incompletesignature",
        then=_auth("invalid"),
    ),
    when(
        says=(
            r"invalid (?:x-)?api[- ]?key",
            r"incorrect api key",
            r"api key (?:is )?(?:not valid|invalid)",
            r"invalid (?:bearer|auth|access|authentication)",
            r"security token included in the request is invalid",
            r"invalid credentials",
            r"authentication (?:error|failed)",
            r"failed to authenticate",
            r"user not found",
            r"invalid_grant",
            r"bad credentials",
            r"signature (?:does not match|we calculated)",
            r"unauthori[sz]ed",
            r"x-api-key",
            r"无效的令牌",
            r"could not validate credentials",
        ),
        then=_auth("invalid"),
    ),
)
