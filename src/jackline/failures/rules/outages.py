"""Recognise a provider that fails, or a broken path to it: overload, timeouts, streams, network.

Rules: (1) an overload is known by its code before its text; (2) what a proxy reports about the
backend is the provider's fault, not the network's; a fault on this machine or its network is
distinguished from the provider's; (3) a broken stream is distinguished from a late one; (4) a
page where an answer should be comes from the network, whatever its status.
"""

from __future__ import annotations

from functools import partial

from jackline.failures.failure import Kind, Scope
from jackline.failures.rules.rule import Verdict, when

_OVERLOADED = Verdict(Kind.OVERLOADED)
_MODEL_OVERLOADED = Verdict(Kind.OVERLOADED, scope=Scope.MODEL)
_BROKEN = Verdict(Kind.UPSTREAM_5XX)
_MODEL_BROKEN = Verdict(Kind.UPSTREAM_5XX, scope=Scope.MODEL)
_CLOUDFLARE = Verdict(Kind.UPSTREAM_5XX, "cloudflare")
_ENVOY = Verdict(Kind.UPSTREAM_5XX, "envoy")
_LATE = Verdict(Kind.TIMEOUT)
_MODEL_LATE = Verdict(Kind.TIMEOUT, scope=Scope.MODEL)

_A_MODEL_IS = (
    r"(?:model|opus|sonnet|haiku|fable|claude-[\w.\[\]-]{3,40})"
    r" (?:is|are)(?: currently| temporarily)?"
)

_cut = partial(Verdict, Kind.TRUNCATED_STREAM)

OVERLOAD = (
    when(codes="overloaded_error server_is_overloaded overloadederror", then=_OVERLOADED),
    when(text=r"reset reason: overflow", then=Verdict(Kind.OVERLOADED, "envoy_overflow")),
    when(
        text=(
            rf"{_A_MODEL_IS} (?:overloaded|unavailable|at capacity)",
            rf"{_A_MODEL_IS} experiencing high (?:load|demand)",
        ),
        unless=r"not your usage limit",
        then=_MODEL_OVERLOADED,
    ),
    when(
        text=(
            r"overload(?:ed|ing)?(?! ?(?:protection|resolution|method|operator|function))\b",
            r"overload ?ed_error",
            r"server (?:is )?busy",
            r"繁忙",
            r"(?:inference|service) is temporarily (?:unavailable|overloaded)",
            r"servers? (?:is|are) (?:currently )?(?:busy|at capacity)",
            r"api is at capacity",
            r"pending requests exceeded",
            r"exceeded max pending",
            r"loading model",
            r"model .{0,80}(?:is )?(?:still |currently )?loading",
            r"too many connections, please wait",
            r"total request limit reached",
            r"maximum (?:queue|pending)",
        ),
        unless=(r"error 522", r"origin"),
        then=_OVERLOADED,
    ),
    when(codes="serviceunavailableexception modelnotreadyexception", then=_OVERLOADED),
    when(status=(529,), then=_OVERLOADED),
    when(
        text=(r"experiencing high (?:load|demand)", r"currently experiencing high"),
        then=_OVERLOADED,
    ),
)

LATE = (
    when(text=(r"litellm\.timeout", r"apitimeouterror"), then=_LATE),
    when(codes="modeltimeoutexception", then=_MODEL_LATE),
    when(codes="timeout_error", then=_LATE),
    when(status=(524,), then=Verdict(Kind.TIMEOUT, "cloudflare_524")),
    when(
        text=(r"524: a timeout occurred", r"error code:? 524"),
        then=Verdict(Kind.TIMEOUT, "cloudflare_524"),
    ),
)

STREAM = (
    when(
        text=(
            r"stream idle timeout(?! - no chunks)",
            r"stalled mid-stream",
            r"stopped arriving",
            r"idle timeout waiting for (?:sse|websocket)",
            r"stream (?:stalled|stopped)",
        ),
        then=_cut("stalled"),
    ),
    when(
        text=(
            r"(?:response|stream|turn) (?:above )?(?:may be|was|is) incomplete",
            r"mid-response",
            r"partial response",
        ),
        then=_cut("partial_output"),
    ),
    when(
        text=(
            r"before response\.completed",
            r"before (?:a )?finish_reason",
            r"closed before (?:the )?(?:response|message)",
            r"disconnected before completion: (?:stream closed|idle|response)",
        ),
        then=_cut("no_terminal_event"),
    ),
    when(
        text=(
            r"stream ended (?:before|without|unexpectedly|with empty)",
            r"ended before (?:the response|any complete)",
            r"without (?:sending )?(?:a )?message_stop",
            r"stream (?:was )?truncated",
            r"unexpected end of (?:stream|json|file)",
            r"request ended without sending any chunks",
            r"no (?:assistant )?messages? (?:was |were )?produced",
        ),
        then=_cut("no_message_stop"),
    ),
    when(text=(r"stream_ended_no_result", r"stream closed"), then=_cut("silent")),
    when(
        text=(
            r"error decoding response body",
            r"incomplete(?: chunked)? ?read",
            r"chunkedencodingerror",
            r"transferencodingerror",
            r"content ?length ?error",
            r"clientpayloaderror",
            r"payload is not completed",
            r"during chunk size",
            r"unexpected eof",
            r"response payload",
            r"remoteprotocolerror: peer closed",
            r"invalid chunk",
        ),
        then=_cut("decode"),
    ),
    when(
        text=(
            r"socket connection was closed unexpectedly",
            r"connection (?:was )?closed (?:unexpectedly|while|by (?:peer|server|remote))",
            r"connection lost (?:before|mid)",
            r"premature close",
            r"other side closed",
            r"closed connection without sending complete",
        ),
        unless=(r"upstream connect error", r"before headers", r"mcp"),
        then=_cut("server_fin"),
    ),
    when(
        text=(r"(?:^|[ :'\"])terminated['\"]?\.?$", r"^typeerror: terminated"),
        unless=r"process",
        then=_cut("reset"),
    ),
)

BROKEN = (
    when(codes="modelerrorexception modelstreamerrorexception", then=_MODEL_BROKEN),
    when(codes="internalserverexception", then=_BROKEN),
    when(
        text=(
            r"upstream connect error",
            r"disconnect/reset before headers",
            r"reset reason: ",
            r"no healthy upstream",
            r"upstream_reset_before",
        ),
        then=_ENVOY,
    ),
    when(status=(520, 521, 522, 523, 525, 526, 527, 530), then=_CLOUDFLARE),
    when(
        text=(r"cloudflare", r"error code:? 10\d\d", r"web server is down"),
        status=(500, 502, 503),
        then=_CLOUDFLARE,
    ),
    when(codes="cmek_context_unavailable", then=Verdict(Kind.UPSTREAM_5XX, scope=Scope.ACCOUNT)),
    when(
        codes="internal internal_error internal_server_error api_error server_error unknown_error"
        " finish_reason_error response_failed",
        text=r"model",
        status=(500, 502, 503),
        unless=(r"not found", r"does not exist"),
        then=_MODEL_BROKEN,
    ),
    when(
        codes="api_error internal_server_error server_error internal internalservererror",
        unless=r"time(?:d)? ?-?out",
        then=_BROKEN,
    ),
    when(
        text=(
            r"internal server error",
            r"bad gateway",
            r"service (?:is )?(?:temporarily )?unavailable",
            r"server-side issue",
            r"server (?:had|experienced|encountered) an? (?:internal )?error",
            r"no server is available",
            r"no available server",
            r"runner process has terminated",
            r"enginedeaderror",
            r"error (?:occurred )?while processing your request",
            r"unicorn!",
            r"service disruption",
            r"backend (?:error|unavailable|connection)",
            r"upstream (?:error|unavailable)",
            r"internalservererror",
            r"something went wrong on our",
        ),
        then=_BROKEN,
    ),
)

TIMEOUT = (
    when(
        text=(
            r"tim(?:e|ed) ?-?out",
            r"deadline exceeded",
            r"didn't respond in time",
            r"no response from api",
            r"took too long",
            r"timeouterror",
            r"readtimeout",
            r"etimedout",
            r"timeout exceeded",
            r"no chunks received",
            r"headers_timeout",
            r"body_timeout",
        ),
        unless=(
            r"connect timeout",
            r"connection timed out",
            r"connecttimeout",
            r"und_err_connect_timeout",
            r"connect etimedout",
        ),
        then=_LATE,
    ),
    when(status=(408, 504), then=_LATE),
)

_edge = partial(Verdict, Kind.NETWORK_EDGE)

_TLS = _edge("tls", retry_same=False, failover_helps=False)
_REGION = _edge("region_block", retry_same=False)
_PROXY = _edge("proxy", retry_same=False)
_PORTAL = _edge("captive_portal", retry_same=False, failover_helps=False)

BORDER = (
    when(codes="unsupported_country_region_territory", then=_REGION),
    when(
        text=(
            r"country, region,? or territory",
            r"(?:not available|unsupported) in your (?:country|region)",
            r"location is not supported",
            r"unsupported (?:country|region)",
            r"blocked before it reached",
            r"request not allowed",
            r"banned the country",
            r"not supported in your (?:country|region)",
        ),
        unless=r"failed to connect",
        then=_REGION,
    ),
    when(status=(403,), codes="forbidden", unless=(r"model", r"api key", r"token"), then=_REGION),
    when(
        text=(
            r"just a moment\.\.\.",
            r"challenge-platform",
            r"enable javascript and cookies",
            r"attention required! \| cloudflare",
        ),
        then=_edge("cf_challenge"),
    ),
    when(
        codes="sandbox_egress_restricted",
        then=_edge("egress_policy", retry_same=False, failover_helps=False),
    ),
    when(
        text=(
            r"virtual network",
            r"vnet",
            r"firewall rules",
            r"public (?:network )?access is disabled",
        ),
        status=(403,),
        then=_edge("firewall", retry_same=False),
    ),
    when(status=(407,), then=_PROXY),
    when(
        text=(
            r"internet access denied",
            r"access (?:to this (?:site|page|website) )?(?:has been |is )?(?:blocked|denied) by",
            r"web filter",
            r"blocked by (?:your )?(?:administrator|organization|network)",
            r"sign in to (?:the )?(?:wi-?fi|network)",
            r"captive portal",
            r"(?:hotspot|guest wi-?fi) (?:log ?in|sign)",
            r"zscaler",
            r"fortiguard",
            r"expected json, got html",
        ),
        unless=(r"aws", r"iam", r"certificate"),
        then=_PORTAL,
    ),
    when(
        text=(r"squid", r"cache administrator", r"access control configuration prevents"),
        status=(403, 407, 502, 503),
        then=_PROXY,
    ),
    when(
        text=(
            r"empty or malformed response",
            r"unexpected token '?<",
            r"<!doctype",
            r"expected json",
            r"non-json response",
        ),
        status=(200,),
        then=_edge("malformed_200"),
    ),
)

PATH = (
    # Our own words, of upstream/interface.py: asked again, it would be as large.
    when(
        text=r"larger than limits\.answer allows", then=_edge("answer_too_large", retry_same=False)
    ),
    when(
        text=r"more than limits\.held_answers allows",
        then=_edge("answers_too_large", retry_same=False),
    ),
    when(
        text=r"longer than limits\.answer_time allows",
        then=_edge("answer_too_long", retry_same=False),
    ),
    when(
        text=(
            r"self[- ]signed",
            r"cert(?:ificate)?[_ ](?:verif|has|expired|is|was|not|signed|untrusted|common)",
            r"certificate",
            r"x509",
            r"unable_to_(?:get|verify)",
            r"issuer_cert",
            r"ssl(?:error|certverification)",
            r"err_tls",
            r"tlsv1",
            r"ssl routines",
            r"wrong version number",
            r"handshake failure",
            r"depth_zero",
            r"cert_",
        ),
        then=_TLS,
    ),
    when(
        text=(
            r"err_proxy",
            r"proxy (?:authentication|refused|connection)",
            r"tunnel(?:ing)? (?:connection )?(?:failed|socket|refused)",
            r"through your proxy",
            r"proxyerror",
            r"proxy tunnel",
        ),
        then=_PROXY,
    ),
    when(
        text=(
            r"enotfound",
            r"eai_again",
            r"eai_nodata",
            r"getaddrinfo",
            r"gaierror",
            r"name or service not known",
            r"no such host",
            r"name resolution",
            r"nodename nor servname",
            r"could not resolve",
            r"dns (?:error|lookup|fail)",
            r"check your internet or dns",
            r"nameresolutionerror",
            r"unknownhost",
            r"name not resolved",
            r"name_not_resolved",
            r"failed to lookup address",
        ),
        then=_edge("dns"),
    ),
    when(
        text=(
            r"enetunreach",
            r"ehostunreach",
            r"enetdown",
            r"network is unreachable",
            r"no route to host",
            r"no internet",
            r"no network",
            r"internet_disconnected",
            r"offline",
        ),
        then=_edge("no_route", failover_helps=False),
    ),
    when(
        text=(
            r"econnrefused",
            r"connection ?refused",
            r"winerror 10061",
            r"connect call failed",
            r"actively refused",
            r"failedtoopensocket",
            r"target machine refused",
        ),
        then=_edge("refused"),
    ),
    when(
        text=(
            r"connect timeout",
            r"connecttimeout",
            r"und_err_connect_timeout",
            r"connection timed out",
            r"connect etimedout",
            r"connection timeout",
            r"timed out connecting",
        ),
        then=_edge("connect_timeout"),
    ),
    when(
        text=(
            r"econnreset",
            r"econnaborted",
            r"epipe",
            r"und_err_socket",
            r"broken pipe",
            r"connection (?:was |has been )?(?:reset|aborted|lost|error|closed)",
            r"server disconnected",
            r"socket hang up",
            r"without sending a response",
            r"remote end closed",
            r"connectionreset",
            r"err_connection",
            r"winerror 1005\d",
            r"forcibly closed",
            r"readerror",
            r"writeerror",
            r"remoteprotocolerror",
            r"connection dropped",
            r"protocol error",
        ),
        then=_edge("reset"),
    ),
    when(
        text=(
            r"ebadf",
            r"eaddrnotavail",
            r"emfile",
            r"socket (?:error|exception)",
            r"enobufs",
            r"econn",
        ),
        then=_edge("socket"),
    ),
)

# Words that say no more than "it did not work"; everything more telling has been tried by then.
UNREACHABLE = (
    when(
        text=(
            r"unable to connect",
            r"can't reach",
            r"cannot connect",
            r"could not connect",
            r"failed to connect",
            r"couldn't connect",
            r"connection (?:failed|error)",
            r"connecterror",
            r"connectionerror",
            r"fetch failed",
            r"network (?:error|issue|problem)",
            r"networkerror",
            r"error sending request",
            r"failed to fetch",
            r"apiconnectionerror",
            r"endpointconnectionerror",
        ),
        then=_edge("unreachable"),
    ),
)
