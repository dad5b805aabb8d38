"""The vendors: how each is addressed and authenticated, and which dialect it speaks.

Rules: (1) one file per kind of upstream, all facts about kinds in settings.py; (2) nothing here
waits, retries or chooses.
"""

from jackline.providers.provider import Provider, UnsupportedRequestError
from jackline.providers.settings import Credential, UpstreamKind, UpstreamSettings

__all__ = ["Credential", "Provider", "UnsupportedRequestError", "UpstreamKind", "UpstreamSettings"]
