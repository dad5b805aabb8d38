"""Name Claude's models as the clouds name them.

Laws: (1) whatever is not one of Claude's own names stays as it is: whoever wrote it in a map knows
better; (2) names that are not known yet are derived by the pattern of the newest ones.
Not here: which model is asked for (gateway/), the user's own map (settings.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_DATED = re.compile(r"(claude-.+?)-(\d{8})")
# Names without a date mean the one version there is; up to 4.5 the clouds want it with its date.
_DATES: Mapping[str, str] = {
    "claude-3-haiku": "20240307",
    "claude-3-opus": "20240229",
    "claude-3-5-haiku": "20241022",
    "claude-3-5-sonnet": "20241022",
    "claude-3-7-sonnet": "20250219",
    "claude-opus-4": "20250514",
    "claude-sonnet-4": "20250514",
    "claude-opus-4-1": "20250805",
    "claude-opus-4-5": "20251101",
    "claude-sonnet-4-5": "20250929",
    "claude-haiku-4-5": "20251001",
}
_SECOND_SONNET_3_5 = "claude-3-5-sonnet-20241022"
_BEDROCK_ODD: Mapping[str, str] = {"claude-opus-4-6": "claude-opus-4-6-v1"}
_AREAS = ("global", "us", "eu", "apac", "jp", "au", "us-gov")
# The models that Bedrock serves by a profile for all of Asia and the Pacific; later ones are served
# there by a profile for Japan or Australia, or else only by the one for the whole world.
_IN_APAC = re.compile(r"claude-3-.+|claude-sonnet-4-20250514")
_IN_JAPAN = re.compile(r"claude-(?:sonnet|haiku)-4-5-\d{8}|claude-(?:opus|sonnet)-4-6")
_IN_AUSTRALIA = re.compile(r"claude-(?:sonnet|haiku)-4-5-\d{8}|claude-[a-z]+-[0-9-]{1,4}")


def bedrock_id(model: str, region: str) -> str:
    """The inference profile for a model, called from a region.

    In place of a region may stand what a profile covers: `global`, `us`, `eu`, `apac`, `jp`, `au`.
    """
    name = _full_name(model)
    if name is None:
        return model
    if _DATED.fullmatch(name):
        base = f"{name}-{'v2' if name == _SECOND_SONNET_3_5 else 'v1'}:0"
    else:
        base = _BEDROCK_ODD.get(name, name)
    area = region if region in _AREAS else _area(name, region)
    return f"{area}.anthropic.{base}"


def vertex_id(model: str) -> str:
    """The name of a model at Vertex."""
    name = _full_name(model)
    if name is None:
        return model
    dated = _DATED.fullmatch(name)
    if dated is None:
        return name
    family = f"{dated[1]}-v2" if name == _SECOND_SONNET_3_5 else dated[1]
    return f"{family}@{dated[2]}"


def _full_name(model: str) -> str | None:
    """The name with its date, where it has one; None when it is no name of Claude's own."""
    if not model.startswith("claude-") or not re.fullmatch(r"[a-z0-9.-]+", model):
        return None
    if _DATED.fullmatch(model):
        return model
    name = model.removesuffix("-latest").removesuffix("-0")
    return f"{name}-{_DATES[name]}" if name in _DATES else model


def _area(name: str, region: str) -> str:
    start = region.partition("-")[0]
    if region.startswith("us-gov-"):
        return "us-gov"
    if start in ("us", "ca", "eu"):
        return "eu" if start == "eu" else "us"
    if start != "ap":
        return "global"
    if _IN_APAC.fullmatch(name):
        return "apac"
    if region in ("ap-northeast-1", "ap-northeast-3") and _IN_JAPAN.fullmatch(name):
        return "jp"
    if region in ("ap-southeast-2", "ap-southeast-4") and _IN_AUSTRALIA.fullmatch(name):
        return "au"
    return "global"
