"""Say an Anthropic request in the words of OpenAI's Chat Completions.

Laws: (1) what cannot be said is refused by name or noted; (2) the results of calls follow the
message that made the calls, whatever else was said between; (3) ids bind as before.
Not here: reading the request (neutral/request.py), the way back (answer.py, stream.py).
"""

from __future__ import annotations

from functools import partial

import msgspec

from jackline.dialects.neutral.account import CannotSayError, Notes, Translated
from jackline.dialects.neutral.conversation import Asked, Choice, Tool
from jackline.dialects.neutral.effort import known_effort
from jackline.dialects.neutral.identity import told_user
from jackline.dialects.neutral.limits import longest_answer, sampling
from jackline.dialects.neutral.options import Target
from jackline.dialects.neutral.request import read_asked
from jackline.dialects.neutral.tools import ToolNames, told_tools
from jackline.dialects.openai_chat.messages import ChatMessages

_MOST_STOPS = 4
_VENDOR = Target()


def to_chat(body: bytes | bytearray, model: str, options: Target = _VENDOR) -> Translated:
    """The request for `POST /v1/chat/completions`; CannotSayError names what cannot be said."""
    notes = Notes()
    asked = read_asked(body, options.forgo, notes)
    names = ToolNames(notes)
    messages = ChatMessages(options, notes, names)
    messages.say_system(asked.system)
    for turn in asked.turns:
        messages.say(turn)
    told: dict[str, object] = {"model": model, "messages": messages.done()}
    limit = longest_answer(asked, options, notes)
    if limit is not None:
        told[options.max_tokens_field] = limit
    told |= sampling(asked, options, notes)
    told |= _stops(asked)
    told |= told_tools(asked, partial(_tool, names), partial(_choice, names))
    effort = known_effort(asked.effort, options.efforts, notes)
    if effort is not None:
        told["reasoning_effort"] = effort
    if asked.schema is not None:
        schema = {"name": "answer", "schema": asked.schema, "strict": True}
        told["response_format"] = {"type": "json_schema", "json_schema": schema}
    told |= told_user(asked.user, options, notes)
    if options.prompt_cache_key is not None:
        told["prompt_cache_key"] = options.prompt_cache_key
    if asked.stream:
        told |= {"stream": True, "stream_options": {"include_usage": True}}
    return Translated(msgspec.json.encode(told), notes.told(), names.real)


def _stops(asked: Asked) -> dict[str, object]:
    if not asked.stops:
        return {}
    if len(asked.stops) > _MOST_STOPS:
        raise CannotSayError("stop_sequences", f"more than {_MOST_STOPS} of them")
    return {"stop": asked.stops}


def _tool(names: ToolNames, tool: Tool) -> dict[str, object]:
    function: dict[str, object] = {"name": names.of(tool.name, f"{tool.at}.name")}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = tool.schema
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _choice(names: ToolNames, choice: Choice) -> object:
    if choice.kind == "tool":
        name = names.of(choice.name, "tool_choice.name")
        return {"type": "function", "function": {"name": name}}
    return "required" if choice.kind == "any" else choice.kind
