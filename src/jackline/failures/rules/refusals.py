"""Recognise what a provider refuses: the caller's credentials, the model, the content.

Rules: (1) a person has to change something, so nothing here is retried unless the text says that
it recovers by itself; (2) a border or firewall that answers 403 is not a matter of credentials
(outages.py); (3) a missing model is distinguished from a wrong address.
Not here: money (limits.py), borders that answer 403 (outages.py).
"""

from __future__ import annotations

from functools import partial

from jackline.failures.failure import Kind, Scope
from jackline.failures.rules.rule import Verdict, when

_auth = partial(Verdict, Kind.AUTH)

TRANSIENT_AUTH = (
    when(
        text=(
            r"temporary network issue",
            r"service disruption",
            r"authentication service (?:is )?(?:down|unavailable)",
        ),
        status=(401, 403),
        then=_auth("transient", retry_same=True),
    ),
    when(
        text=r"try again (?:after|in) \d{1,2} minutes?",
        status=(403,),
        then=_auth("propagation", scope=Scope.MODEL, retry_same=True),
    ),
)

AUTH = (
    when(codes="verification_required", then=_auth("verification")),
    when(
        text=(
            r"organi[sz]ation (?:has been|is|was) disabled",
            r"disabled organi[sz]ation",
            r"account (?:has been|is|was) (?:disabled|suspended|deactivated|on hold|banned)",
        ),
        then=_auth("org_disabled"),
    ),
    when(
        codes="organization_on_hold account_on_hold organization_type_not_supported"
        " claude_code_key_creator_not_member oauth_org_not_allowed",
        then=_auth("org_disabled"),
    ),
    when(
        text=(
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
    when(codes="ftuformnotfilled", then=_auth("onboarding", scope=Scope.MODEL)),
    when(text=r"revoked", then=_auth("revoked")),
    when(
        text=(
            r"(?:token|session|login|credentials?|key)\b.{0,30}(?:has |have |is |are )?expired",
            r"expiredtoken",
            r"refresh token (?:was|has)",
            r"login expired",
            r"session expired",
            r"token is expired",
        ),
        then=_auth("expired"),
    ),
    when(codes="expiredtokenexception expiredtoken token_expired", then=_auth("expired")),
    when(
        text=(
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
        text=(
            r"scope requirement",
            r"required scopes?",
            r"insufficient (?:scope|permission)",
            r"lacks required",
        ),
        then=_auth("scope"),
    ),
    when(
        codes="authentication_error invalid_api_key unrecognizedclientexception"
        " invalidsignatureexception api_key_invalid unauthenticated authentication_failed"
        " token_not_found_in_db auth_error invalid_token incompletesignature",
        then=_auth("invalid"),
    ),
    when(
        text=(
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

_invalid = partial(Verdict, Kind.INVALID_REQUEST)
_policy = partial(Verdict, Kind.CONTENT_POLICY)

_TOO_LONG = _invalid("context_too_long", failover_helps=True)
_NO_MODEL = Verdict(Kind.MODEL_NOT_FOUND)
_NO_ACCESS = Verdict(Kind.MODEL_NOT_FOUND, "model_access")
_ENDPOINT = _invalid("endpoint", failover_helps=True)

POLICY = (
    when(text=r"output blocked by content filter", then=_policy("output_filter", retry_same=True)),
    when(
        codes="content_filter responsibleaipolicyviolation content_policy_violation"
        " invalid_prompt prohibited_content moderation_blocked",
        text=(r"prompt", r"policy", r"flagged", r"violat"),
        then=_policy("prompt_filter"),
    ),
    when(
        codes="content_filter responsibleaipolicyviolation content_policy_violation safety"
        " recitation prohibited_content blocklist spii guardrail_intervened",
        then=_policy("output_filter"),
    ),
    when(codes="refusal", then=_policy("refusal")),
    when(
        text=(
            r"violate (?:our|the) usage polic",
            r"usage policy",
            r"safeguards flagged",
            r"safety measures that flagged",
        ),
        then=_policy("refusal"),
    ),
    when(
        text=(
            r"content (?:management|moderation|safety) policy",
            r"content exists risk",
            r"blocked due to safety",
            r"blocked? (?:reason|prompt)",
            r"caused by a block",
            r"content[_ ]filter",
            r"flagged (?:as|by|for)",
            r"violates? (?:our|the) (?:content|safety)",
            r"guardrail (?:intervened|blocked)",
            r"response was filtered",
            r"blocked by (?:our )?(?:content|safety|moderation)",
            r"cybersecurity risk",
            r"invalid_prompt",
        ),
        then=_policy("prompt_filter"),
    ),
)

MODEL = (
    when(
        text=(
            r"(?:do|does)(?:n't| not) have access to (?:the |this )?(?:model|it|gpt|claude-)",
            r"not allowed to use publisher model",
            r"model access (?:is )?denied",
            r"access to model .{0,60}(?:denied|not allowed)",
            r"not available (?:with|on|in|for) (?:the|your) .{0,30}plan",
            r"not authorized to (?:access|use) (?:this |the )?model",
            r"model_access",
            r"team not allowed to access model",
        ),
        unless=r"was not found or",
        then=_NO_ACCESS,
    ),
    when(
        codes="model_not_found deploymentnotfound model_not_available model_not_supported"
        " resourcenotfoundexception unsupported_model model_deprecated modelnotfounderror",
        then=_NO_MODEL,
    ),
    when(
        text=(
            r"\bmodel:? [^ ]{0,120}[^·]{0,20}(?:not found|not exist|isn't available|not available)",
            r"\bmodel:? [^ ]{0,120}[^·]{0,20}(?:is not supported|has been deprecated)",
            r"issue with the selected model",
            r"try pulling it first",
            r"model .{0,80}(?:decommissioned|no longer supported|been retired)",
            r"no endpoints found for",
            r"invalid model\b",
            r"unknown model",
            r"model identifier is invalid",
            r"on-demand throughput isn",
            r"model .{0,60}(?:not found|does not exist)",
            r"no such model",
            r"model_not_found",
            r"(?:deployment|inference profile) .{0,80}(?:not (?:found|exist)|does not exist)",
            r"is no longer available\. please switch",
            r"无可用渠道",
            r"no available channel",
            r"is not a valid model",
            r"unsupported model",
            r"model not exist",
            r"is not supported when using codex",
            r"model version .{0,40}end of",
        ),
        unless=(r"tool .{0,40}not found", r"support tool use"),
        then=_NO_MODEL,
    ),
    when(text=r"^model: [\w.-]{2,80}", status=(404,), then=_NO_MODEL),
)

INVALID = (
    when(
        text=(r"max_tokens exceed context", r"exceed context limit: \d"),
        then=_invalid("max_tokens_overflow", retry_same=True),
    ),
    when(
        codes="context_length_exceeded exceed_context_size_error context_window_exceeded"
        " prompt_too_long",
        then=_TOO_LONG,
    ),
    when(
        text=(
            r"prompt is too long",
            r"maximum context length",
            r"context (?:window|length|size|limit)",
            r"too many (?:input )?tokens in",
            r"conversation (?:is )?too long",
            r"input (?:is )?too long",
            r"max size: \d{1,9} tokens",
            r"exceeds? the (?:available )?context",
            r"keep the first \d",
            r"reduce the length",
            r"input token count .{0,40}exceeds",
            r"max_prompt_tokens",
            r"prompt too long",
            r"request (?:body )?too large for .{0,60}tokens",
        ),
        unless=r"rate limit of",
        then=_TOO_LONG,
    ),
    when(
        codes="request_body_too_large_after_decoding request_too_large",
        then=_invalid("request_too_large"),
    ),
    when(
        text=(
            r"invalid signature in thinking",
            r"thinking(?: or redacted_thinking)? blocks? .{0,80}cannot be modified",
            r"must (?:start|be|begin) (?:with )?(?:a )?thinking",
            r"first block must be",
            r"thinking block.{0,40}signature",
        ),
        then=_invalid("thinking_signature", retry_same=True),
    ),
    when(
        text=(
            r"tool_use_id",
            r"tool_use ids?",
            r"tool_result",
            r"tool use concurrency",
            r"tool_calls? (?:must|that)",
            r"server_tool_use",
            r"tool_call_id",
            r"no tool (?:call|output) found",
            r"function call .{0,60}(?:output|response)",
        ),
        unless=r"is_error",
        status=(400, 422),
        then=_invalid("tool_history"),
    ),
    when(
        text=(r"tool use concurrency issues", r"duplicate tool_use"), then=_invalid("tool_history")
    ),
    when(
        text=(
            r"non-empty content",
            r"empty text blocks?",
            r"text content blocks must be non-empty",
            r"content (?:is|cannot be) empty",
            r"must not be empty",
            r"final assistant content cannot end",
        ),
        status=(400, 422),
        then=_invalid("empty_block"),
    ),
    when(
        codes="claude_code_version_too_old",
        then=Verdict(Kind.INVALID_REQUEST, "client_version", Scope.ACCOUNT),
    ),
    when(
        text=(
            r"(?:image|pdf|document|file|media)s?\b.{0,80}(?:too large|exceeds?|could not|maximum)",
            r"(?:image|pdf|document|file|media)s?\b.{0,80}(?:valid|password|unsupported|corrupt)",
            r"could not process (?:image|pdf|document)",
            r"maximum of \d{1,4} pdf pages",
            r"image dimensions",
        ),
        status=(400, 413, 422),
        then=_invalid("media"),
    ),
    when(
        text=(
            r"could not process (?:image|pdf)",
            r"image (?:base64|exceeds|was too large|dimensions)",
            r"pdf (?:too large|is password|has too many)",
            r"image exceeds",
        ),
        then=_invalid("media"),
    ),
    when(
        text=(
            r"request (?:body |entity |payload )?(?:is )?too large",
            r"payload too large",
            r"entity too large",
            r"exceeds the maximum (?:allowed )?(?:size|bytes)",
        ),
        then=_invalid("request_too_large"),
    ),
    when(
        text=(r"output token maximum", r"exceeded the \d{3,7} output token"),
        then=_invalid("output_limit"),
    ),
    when(
        text=(
            r"invalid url",
            r"page not found",
            r"unknown (?:url|route|endpoint|path)",
            r"no route matched",
            r"cannot (?:post|get) /",
            r"route .{0,60}not found",
            r"no such (?:route|endpoint)",
            r"method not allowed",
        ),
        then=_ENDPOINT,
    ),
    when(
        text=(
            r"no conversation found",
            r"session id .{0,60}(?:in use|not found)",
            r"session not found",
        ),
        then=_invalid("session"),
    ),
)

# Codes that only say "not like this"; a person's credentials come before them.
OTHERWISE_INVALID = (
    when(
        codes="invalid_request_error validationexception invalid_argument badrequesterror"
        " bad_request validation_error invalid_value unsupported_parameter unsupported_value"
        " malformedpolicydocument",
        status=(400, 404, 409, 413, 415, 422, 200),
        unless=(r"rate limit", r"overloaded", r"quota", r"credit"),
        then=Verdict(Kind.INVALID_REQUEST),
    ),
    when(
        text=(
            r"extra inputs are not permitted",
            r"unsupported parameter",
            r"field required",
            r"input should be",
            r"unexpected (?:value|keyword)",
            r"is not supported (?:by|with|for) this model",
            r"malformed (?:input )?request",
            r"invalid json",
            r"unrecognized request argument",
            r"cannot be used",
            r"must be (?:one of|greater|less|a )",
        ),
        status=(400, 422),
        then=_invalid("unsupported_feature"),
    ),
)
