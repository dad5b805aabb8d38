"""The vendors: how each is addressed and authenticated, and which dialect it speaks.

Rules: (1) one file per kind of upstream, Anthropic's beside the interface in provider.py; all facts
about kinds in settings.py; (2) nothing here waits, retries or chooses.
"""

from jackline.providers.provider import Provider
from jackline.providers.sent_request import UnsupportedRequestError
from jackline.providers.settings import Credential, UpstreamKind, UpstreamSettings

__all__ = ["Credential", "Provider", "UnsupportedRequestError", "UpstreamKind", "UpstreamSettings"]
