"""Fill in any schema that a client asks an answer by, so that flows run with no key and no script.

Laws: (1) the same request gets the same answer; (2) what is filled in is valid by the common part
of JSON Schema: types, properties, items, enums, bounds, references, choices; (3) lists have three
entries where the schema allows it, so that fans are worth looking at.
Not here: scripted replies (mind.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from jackline.simulator.conversation import Asked, JsonObject

_ITEMS = 3
_DEEPEST = 8
_WORDS = ("harbour", "lantern", "current", "anchor", "beacon", "tide", "mast", "chart", "rope")


def wanted_schema(asked: Asked, tool: str) -> Mapping[str, Any] | None:
    """The schema of this tool's input, if the client offers it."""
    for offered in asked.body.get("tools") or ():
        if isinstance(offered, dict) and offered.get("name") == tool:
            schema = offered.get("input_schema")
            return schema if isinstance(schema, dict) else None
    return None


def filled(schema: Mapping[str, Any], about: str) -> JsonObject:
    """An object that fits the schema; `about` decides what stands in it."""
    value = _Filling(schema, about).value(schema, "$", 0)
    return value if isinstance(value, dict) else {}


class _Filling:
    def __init__(self, root: Mapping[str, Any], about: str) -> None:
        self._root = root
        self._about = about

    def value(self, schema: Any, place: str, depth: int) -> Any:
        schema = self._resolved(schema)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._chosen(schema["enum"], place)
        for choice in ("anyOf", "oneOf", "allOf"):
            if schema.get(choice):
                return self._of_choice(schema, choice, place, depth)
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = next((each for each in kind if each != "null"), "null")
        return self._of_kind(kind or _kind_of(schema), schema, place, depth)

    def _of_choice(self, schema: Mapping[str, Any], choice: str, place: str, depth: int) -> Any:
        if choice == "allOf":
            whole: dict[str, Any] = {name: v for name, v in schema.items() if name != choice}
            for part in schema[choice]:
                whole |= self._resolved(part)
            return self.value(whole, place, depth)
        shown = [each for each in schema[choice] if self._resolved(each).get("type") != "null"]
        return self.value((shown or schema[choice])[0], place, depth)

    def _of_kind(self, kind: str, schema: Mapping[str, Any], place: str, depth: int) -> Any:
        if kind == "object":
            return self._object(schema, place, depth)
        if kind == "array":
            return self._array(schema, place, depth)
        if kind == "string":
            return self._text(schema, place)
        if kind in ("integer", "number"):
            return self._number(schema, place, whole=kind == "integer")
        return self._drawn(place) % 2 == 0 if kind == "boolean" else None

    def _object(self, schema: Mapping[str, Any], place: str, depth: int) -> JsonObject:
        properties = schema.get("properties") or {}
        required = set(schema.get("required") or ())
        return {
            name: self.value(inner, f"{place}.{name}", depth + 1)
            for name, inner in properties.items()
            # Deep down only what must be there, or a schema that holds itself would never end.
            if name in required or depth < _DEEPEST
        }

    def _array(self, schema: Mapping[str, Any], place: str, depth: int) -> list[Any]:
        least = int(schema.get("minItems") or 0)
        count = max(least, 0 if depth >= _DEEPEST else _ITEMS)
        count = min(count, int(schema.get("maxItems", count)))
        items = schema.get("items", {})
        return [self.value(items, f"{place}[{n}]", depth + 1) for n in range(count)]

    def _text(self, schema: Mapping[str, Any], place: str) -> str:
        draw = self._drawn(place)
        words = [_WORDS[(draw >> (4 * n)) % len(_WORDS)] for n in range(3)]
        text = f"{' '.join(words)} {draw % 1000}"
        text += " " + _WORDS[0] * (int(schema.get("minLength") or 0) // len(_WORDS[0]) + 1)
        longest = schema.get("maxLength")
        text = text if longest is None else text[: int(longest)]
        return text.rstrip() if longest is None else text

    def _number(self, schema: Mapping[str, Any], place: str, *, whole: bool) -> float:
        low: float = schema.get("minimum", schema.get("exclusiveMinimum", 0))
        high: float = schema.get("maximum", schema.get("exclusiveMaximum", low + 100))
        share = (self._drawn(place) % 97 + 1) / 99
        number = low + (high - low) * share
        return round(number) if whole else round(number, 3)

    def _chosen(self, choices: list[Any], place: str) -> Any:
        return choices[self._drawn(place) % len(choices)]

    def _resolved(self, schema: Any) -> Mapping[str, Any]:
        if not isinstance(schema, dict):
            return {}
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return schema
        found: Any = self._root
        for part in reference[2:].split("/"):
            found = found.get(part, {}) if isinstance(found, dict) else {}
        return self._resolved(found)

    def _drawn(self, place: str) -> int:
        return int.from_bytes(hashlib.sha256(f"{self._about}\n{place}".encode()).digest()[:6])


def _kind_of(schema: Mapping[str, Any]) -> str:
    if "properties" in schema:
        return "object"
    return "array" if "items" in schema else "string"
