"""Recognise failures above the API: notices, cancels, tools, missing structured output.

Rules: (1) a warning that names a limit is not a failure; (2) a tool that failed is not a model
call that failed, even when it quotes one; (3) a missing answer is only blamed on the model when
no API error is beside it.
"""

from __future__ import annotations

from functools import partial

from jackline.failures.failure import Kind
from jackline.failures.observation import Where
from jackline.failures.rules.rule import Verdict, when

_NOTICE = Verdict(Kind.NOT_A_FAILURE)
_CANCEL = Verdict(Kind.CLIENT_CANCEL)
_TOOL = Verdict(Kind.TOOL_ERROR)

_missing = partial(Verdict, Kind.MISSING_STRUCTURED_OUTPUT)

NOTICES = (
    when(
        text=(
            r"you've used \d{1,3}% of your",
            r"\d{1,3}% of your [\w -]{1,30}(?:used|left|remaining)",
            r"approaching (?:your )?(?:[\w-]{1,20} ){0,3}limit",
            r"close to your",
            r"less than \d{1,3}% of your",
            r"now using (?:usage credits|extra usage|sonnet|opus|haiku|credits)",
            r"^allowance resets",
            r"próximo do limite",
            r"limit reached, now using",
            r"running low on",
            r"routed to [\w.-]{2,40} as a fallback",
        ),
        then=_NOTICE,
    ),
    when(codes="allowed allowed_warning", text=r"^.{0,200}$", then=_NOTICE),
)

CANCELS = (
    when(status=(499,), then=_CANCEL),
    when(
        codes="aborted_streaming aborted_tools client_closed_request cancelled canceled"
        " user_cancelled apiuseraborterror interrupted",
        then=_CANCEL,
    ),
    when(
        codes="error_max_turns",
        unless=(r"structured_?output", r"json-schema"),
        then=Verdict(Kind.CLIENT_CANCEL, "max_turns"),
    ),
    when(codes="error_max_budget_usd", then=Verdict(Kind.CLIENT_CANCEL, "budget")),
    when(
        text=(
            r"request was aborted",
            r"request interrupted by user",
            r"operation was aborted(?! due to timeout)",
            r"clientclosedrequest",
            r"context cancell?ed",
            r"interrupted by (?:the )?user",
            r"user (?:cancell?ed|aborted|rejected)",
            r"conversation interrupted",
            r"aborted by (?:the )?user",
            r"cancelled by (?:the )?user",
            r"apiuseraborterror",
            r"keyboardinterrupt",
            r"cancellederror",
            r"aborterror(?!.{0,20}timeout)",
            r"interrupted · what should",
            r"user doesn't want to (?:proceed|take)",
            r"exit(?:ed)?(?: with)?(?: code)? (?:130|143)\b",
            r"sigterm",
            r"sigint",
            r"operation cancell?ed",
            r"request (?:was )?cancell?ed",
        ),
        unless=(r"mcp error", r"could be due to a network timeout"),
        then=_CANCEL,
    ),
)

TOOLS = (
    when(
        text=(r"mcp error -3200[01]", r"mcp .{0,60}(?:timed out|connection closed)"),
        then=Verdict(Kind.TOOL_ERROR, "mcp_closed", retry_same=True),
    ),
    when(text=(r"mcp error -?\d", r"mcp server", r"mcp(?:contenttoolarge|tool)"), then=_TOOL),
    when(
        text=(
            r"tool [\w.:-]{1,100} not found",
            r"no such tool",
            r"no result received from client-side tool",
            r"<tool_use_error>",
            r"tool_use_error",
            r"string to replace not found",
            r"file has not been read",
            r"file does not exist",
            r"command (?:failed|timed out after)",
            r"(?:exit|return) code [1-9]\d{0,2}\b",
            r"exited with (?:code|status) [1-9]",
            r"permission denied",
            r"no such file or directory",
            r"command not found",
            r"hook (?:error|blocked)",
            r"parallel tool call",
            r"tool (?:execution|call) (?:failed|error)",
            r"inputvalidationerror",
            r"non-zero exit",
            r"ripgrep",
            r"permission to use [\w-]{1,40} .{0,200}denied",
            r"modulenotfounderror",
            r"importerror",
        ),
        unless=(
            r"exit(?:ed)?(?: with)?(?: code)? (?:130|143)\b",
            r"publickey",
            r"structured_?output",
            r"api error",
        ),
        where=(Where.TRANSCRIPT, Where.CLI_TEXT, Where.EXCEPTION),
        then=_TOOL,
    ),
)

STRUCTURED_OUTPUT = (
    when(
        text=(
            r"no such tool.{0,30}structured_?output",
            r"structured_?output.{0,30}(?:is not available|not offered|not found)",
        ),
        then=_missing("not_offered", retry_same=False),
    ),
    when(
        text=(r"lengthfinishreason", r"length limit was reached"),
        then=_missing("length", retry_same=False),
    ),
    when(
        text=r"(?:structured_?output|json-schema).{0,200}error_max_turns",
        then=_missing("max_turns", retry_same=False),
    ),
    when(codes="error_max_structured_output_retries", then=_missing("retries_exhausted")),
    when(
        text=(
            r"valid structured ?output after",
            r"structured_?output retry cap",
            r"exceeded maximum retries .{0,30}(?:result|output) validation",
            r"maximum retries .{0,20}validation",
        ),
        then=_missing("retries_exhausted"),
    ),
    when(
        text=(
            r"without calling structured_?output",
            r"did not return structured_?output",
            r"structured_?output (?:tool )?(?:was )?(?:not|never) called",
            r"no(?:object|output)generated",
            r"no output generated",
            r"no object generated",
            r"without calling the (?:required )?\w{1,30} tool",
            r"must call (?:the )?structured_?output",
            r"no structured_?output",
        ),
        then=_missing("absent"),
    ),
    when(
        text=(
            r"(?:do|did)(?:es)?(?: not|n't) (?:match|fit) (?:the )?(?:\w{1,10} )?(?:schema|format)",
            r"outputparser",
            r"validation errors? for \w",
            r"returned schema",
            r"parse the response as",
            r"could not parse .{0,40}(?:output|response|llm)",
            r"structured_?output .{0,60}(?:invalid|failed)",
            r"schema validation failed",
            r"output validation",
            r"schema .{0,80}not valid json",
        ),
        then=_missing("invalid"),
    ),
)
