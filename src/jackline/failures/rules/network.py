"""Recognise the way to the provider as the culprit: names, routes, certificates, proxies, borders.

Laws: (1) a fault on this machine or its network is told apart from the provider's; (2) a page
where an answer should be is the network's word, whatever its status.
Not here: proxies that report a broken backend (capacity.py).
"""

from __future__ import annotations

from jackline.failures.failure import Kind
from jackline.failures.rules.rule import Verdict, when


def _edge(
    sub: str, *, retry_same: bool | None = None, failover_helps: bool | None = None
) -> Verdict:
    return Verdict(Kind.NETWORK_EDGE, sub, retry_same=retry_same, failover_helps=failover_helps)


_TLS = _edge("tls", retry_same=False, failover_helps=False)
_REGION = _edge("region_block", retry_same=False)
_PROXY = _edge("proxy", retry_same=False)
_PORTAL = _edge("captive_portal", retry_same=False, failover_helps=False)

BORDER = (
    when(words="unsupported_country_region_territory", then=_REGION),
    when(
        says=(
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
    when(
        status=(403,),
        words="forbidden",
        unless=(
            r"model",
            r"api key",
            r"token",
        ),
        then=_REGION,
    ),
    when(
        says=(
            r"just a moment\.\.\.",
            r"challenge-platform",
            r"enable javascript and cookies",
            r"attention required! \| cloudflare",
        ),
        then=_edge("cf_challenge"),
    ),
    when(
        words="sandbox_egress_restricted",
        then=_edge("egress_policy", retry_same=False, failover_helps=False),
    ),
    when(
        says=(
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
        says=(
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
        unless=(
            r"aws",
            r"iam",
            r"certificate",
        ),
        then=_PORTAL,
    ),
    when(
        says=(
            r"squid",
            r"cache administrator",
            r"access control configuration prevents",
        ),
        status=(403, 407, 502, 503),
        then=_PROXY,
    ),
    when(
        says=(
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
    # Our own words, of upstream/breaks.py: asked again, it would be as large.
    when(
        says=r"larger than limits\.answer allows",
        then=_edge("answer_too_large", retry_same=False),
    ),
    when(
        says=r"longer than limits\.answer_time allows",
        then=_edge("answer_too_long", retry_same=False),
    ),
    when(
        says=(
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
        says=(
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
        says=(
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
        says=(
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
        says=(
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
        says=(
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
        says=(
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
        says=(
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
        says=(
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
