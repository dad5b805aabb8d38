"""Build validators of JSON Schema, for schemas that anybody may have written.

Rules: (1) nothing is fetched: a schema that refers to a file or an address is refused, because the
library would read it while the whole process waits; (2) a schema has a largest size, and its
patterns a largest number of steps; (3) what is wrong with a schema is said by place and rule, never
in words that were read. No other module builds a validator (tests/agents/test_json_schema.py).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NoReturn

from jackline.errors import BadArgumentError
from jackline.outside_names import printable

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

LARGEST_SCHEMA = 256 * 1024
"""In characters of JSON. A model is shown the schema with every call: real ones are far smaller."""
_MOST_BACKTRACKING = 100_000
_LARGEST_PATTERN = 1024 * 1024
_LONGEST_PLACE = 200


def build_validator(schema: dict[str, Any]) -> Validator:
    """The validator; BadArgumentError for a schema that is broken, large or refers elsewhere."""
    # Imported where it is needed: most agents and all short commands do without.
    import jsonschema_rs  # noqa: PLC0415

    refused = _Refused()
    try:
        if len(json.dumps(schema)) > LARGEST_SCHEMA:
            raise _invalid(f"it has more than {LARGEST_SCHEMA} characters")
        return jsonschema_rs.validator_for(
            schema,
            retriever=refused,
            pattern_options=jsonschema_rs.FancyRegexOptions(
                backtrack_limit=_MOST_BACKTRACKING, size_limit=_LARGEST_PATTERN
            ),
        )
    except jsonschema_rs.ValidationError as error:
        raise _invalid(refused.words or _place_and_rule(error)) from None
    except RecursionError:
        raise _invalid("it is nested too deeply") from None
    except (ValueError, TypeError) as error:
        raise _invalid(refused.words or f"it cannot be read ({type(error).__name__})") from None


class _Refused:
    """Fetches nothing, and keeps in mind that it was asked to."""

    def __init__(self) -> None:
        self.words = ""

    def __call__(self, _uri: str) -> NoReturn:
        self.words = (
            "it refers to another document, and none is fetched:"
            " put what that defines into the schema itself"
        )
        raise ValueError("not fetched")


def _place_and_rule(error: ValidationError) -> str:
    place = printable("".join(f"/{step}" for step in error.instance_path)[:_LONGEST_PLACE])
    if not error.schema_path:  # the library gives neither place nor rule for these
        return "a reference in it, or its `$schema`, leads nowhere"
    return f"at {place or 'the top'} ({error.schema_path[-1]})"


def _invalid(why: str) -> BadArgumentError:
    return BadArgumentError(
        f"The schema of the answer is not valid JSON Schema: {why}.",
        hint="Correct the schema.",
    )
