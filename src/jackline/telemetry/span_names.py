"""The names of spans' attributes: OpenTelemetry's for generative AI, and ours.

Rules: (1) names only. They are written here, not imported: the conventions are not stable yet, and
their package moves and renames them; a change there shall be a decision here.
"""

from __future__ import annotations

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
CONVERSATION = "gen_ai.conversation.id"
AGENT = "gen_ai.agent.id"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
TOOL = "gen_ai.tool.name"
TOOL_CALL = "gen_ai.tool.call.id"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_creation.input_tokens"

ERROR_TYPE = "error.type"
STATUS_CODE = "http.response.status_code"
SERVICE_NAME = "service.name"
SERVICE_VERSION = "service.version"

CALL = "jackline.call"
RUN = "jackline.run"
LANE = "jackline.lane"
OUTCOME = "jackline.outcome"
ATTEMPTS = "jackline.attempts"
HELD = "jackline.held_seconds"
REPORTED_BY = "jackline.reported_by"
REQUEST_ID = "jackline.upstream_request_id"
