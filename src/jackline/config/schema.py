"""The JSON Schema of `jackline.toml`, for editors that check and complete it.

Laws: (1) it is made from the document that the loader checks with, so it cannot say anything else;
(2) every key has its description, and its default as one would write it.
Not here: the document (document.py).
"""

from __future__ import annotations

from typing import Any

from jackline.config.document import Document, table_class
from jackline.config.keys import Key
from jackline.config.showing import value_of
from jackline.config.table import Table


def json_schema() -> dict[str, Any]:
    """The schema, as JSON has it."""
    schema = Document.model_json_schema()
    definitions = schema.get("$defs", {})
    _set_defaults(schema, Document, (), definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "jackline.config/1",
        **schema,
        "title": "jackline.toml",
    }


def _set_defaults(
    schema: dict[str, Any], table: type[Table], under: Key, definitions: dict[str, Any]
) -> None:
    for name, part in schema["properties"].items():
        inner = table_class(table, name)
        if inner is not None:
            _set_defaults(definitions[inner.__name__], inner, (*under, name), definitions)
        part.pop("title", None)
        default = table.model_fields[name].default
        if table.model_fields[name].default_factory is not None or default is None:
            part.pop("default", None)
        else:
            part["default"] = value_of((*under, name), default)
