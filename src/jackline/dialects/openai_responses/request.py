"""Say an Anthropic request in the words of OpenAI's Responses.

Laws: (1) what cannot be said is refused by name or noted; (2) the conversation is told whole and
nothing is stored over there; (3) ids bind as before.
Not here: reading the request (neutral/request.py), the way back (answer.py, stream.py).
"""

from __future__ import annotations

from functools import partial

import msgspec

from jackline.dialects.neutral.account import CannotSayError, Notes, Translated
from jackline.dialects.neutral.conversation import Choice, Tool
from jackline.dialects.neutral.effort import known_effort
from jackline.dialects.neutral.identity import told_user
from jackline.dialects.neutral.limits import longest_answer, sampling
from jackline.dialects.neutral.options import Target
from jackline.dialects.neutral.request import read_asked
from jackline.dialects.neutral.tools import ToolNames, told_tools
from jackline.dialects.openai_responses.items import InputItems

_VENDOR = Target()


def to_responses(body: bytes | bytearray, model: str, options: Target = _VENDOR) -> Translated:
    """The request for `POST /v1/responses`; CannotSayError names what cannot be said."""
    notes = Notes()
    asked = read_asked(body, options.forgo, notes)
    names = ToolNames(notes)
    items = InputItems(options, notes, names)
    for turn in asked.turns:
        items.say(turn)
    told: dict[str, object] = {"model": model, "input": items.said, "store": False}
    if asked.system:
        told["instructions"] = "\n\n".join(words.text for words in asked.system)
    limit = longest_answer(asked, options, notes)
    if limit is not None:
        told["max_output_tokens"] = limit
    told |= sampling(asked, options, notes)
    if asked.stops:
        raise CannotSayError("stop_sequences", "OpenAI's Responses have none")
    told |= told_tools(asked, partial(_tool, names), partial(_choice, names))
    effort = known_effort(asked.effort, options.efforts, notes)
    if effort is not None:
        told["reasoning"] = {"effort": effort}
    if asked.schema is not None:
        schema = {"name": "answer", "schema": asked.schema, "strict": True}
        told["text"] = {"format": {"type": "json_schema", **schema}}
    told |= told_user(asked.user, options, notes)
    if options.prompt_cache_key is not None:
        told["prompt_cache_key"] = options.prompt_cache_key
    if options.recall is not None:
        told["include"] = ["reasoning.encrypted_content"]
    if asked.stream:
        told["stream"] = True
    return Translated(msgspec.json.encode(told), notes.told(), names.real)


def _tool(names: ToolNames, tool: Tool) -> dict[str, object]:
    told: dict[str, object] = {
        "type": "function",
        "name": names.of(tool.name, f"{tool.at}.name"),
        "parameters": tool.schema,
        # Responses are strict unless told otherwise, and refuse most schemas then.
        "strict": tool.strict,
    }
    if tool.description is not None:
        told["description"] = tool.description
    return told


def _choice(names: ToolNames, choice: Choice) -> object:
    if choice.kind == "tool":
        return {"type": "function", "name": names.of(choice.name, "tool_choice.name")}
    return "required" if choice.kind == "any" else choice.kind
