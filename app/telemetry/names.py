"""Every name that leaves the process: spans, attributes, span events and metrics.

The GenAI names are those of the OpenTelemetry conventions; what they do not name is under
`surefoot.*`. A test holds this page against what is really emitted.
"""

from typing import Final

SCOPE: Final = "surefoot"

# operations, which are the first word of a span's name too
INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"

# attributes of the conventions
OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CONVERSATION: Final = "gen_ai.conversation.id"
AGENT_NAME: Final = "gen_ai.agent.name"
AGENT_VERSION: Final = "gen_ai.agent.version"
PROMPT_NAME: Final = "gen_ai.prompt.name"
PROMPT_VERSION: Final = "gen_ai.prompt.version"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL: Final = "gen_ai.tool.call.id"
ERROR_TYPE: Final = "error.type"

# attributes of the conventions which hold content, and so are only there when asked for
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"

# our own
STATE_FROM: Final = "surefoot.state.from"
STATE_TO: Final = "surefoot.state.to"
STEP: Final = "surefoot.step"
SEQ: Final = "surefoot.seq"
EPOCH: Final = "surefoot.epoch"
TURN: Final = "surefoot.turn"
ATTEMPT: Final = "surefoot.attempt"
STOP_REASON: Final = "surefoot.stop_reason"
GUARD: Final = "surefoot.guard"
GUARD_TRIPPED: Final = "surefoot.guard.tripped"

SPAN_ATTRIBUTES: Final = {
    "root": frozenset(
        {
            OPERATION,
            PROVIDER,
            REQUEST_MODEL,
            INPUT_TOKENS,
            OUTPUT_TOKENS,
            CACHED_TOKENS,
            CONVERSATION,
            AGENT_NAME,
            AGENT_VERSION,
            PROMPT_NAME,
            PROMPT_VERSION,
            ERROR_TYPE,
            EPOCH,
            TURN,
            STOP_REASON,
        }
    ),
    "phase": frozenset({STATE_FROM, STATE_TO, STEP, SEQ}),
    CHAT: frozenset(
        {
            OPERATION,
            PROVIDER,
            REQUEST_MODEL,
            RESPONSE_MODEL,
            INPUT_TOKENS,
            OUTPUT_TOKENS,
            CACHED_TOKENS,
            CONVERSATION,
            AGENT_NAME,
            PROMPT_NAME,
            PROMPT_VERSION,
            ERROR_TYPE,
            STEP,
            SEQ,
            ATTEMPT,
        }
    ),
    EXECUTE_TOOL: frozenset(
        {OPERATION, TOOL_NAME, TOOL_CALL, CONVERSATION, AGENT_NAME, ERROR_TYPE, STEP, SEQ, ATTEMPT}
    ),
}
"""Which attributes a span of each kind may carry by default."""

CONTENT_ATTRIBUTES: Final = frozenset(
    {INPUT_MESSAGES, OUTPUT_MESSAGES, TOOL_ARGUMENTS, TOOL_RESULT}
)
"""Attributes that only appear when content was asked for."""

# labels: attribute names as Prometheus takes them
L_OPERATION: Final = "gen_ai_operation_name"
L_PROVIDER: Final = "gen_ai_provider_name"
L_MODEL: Final = "gen_ai_request_model"
L_TOKEN_TYPE: Final = "gen_ai_token_type"  # noqa: S105 - the name of a label
L_AGENT: Final = "gen_ai_agent_name"
L_TOOL: Final = "gen_ai_tool_name"
L_ERROR: Final = "error_type"

OPERATION_DURATION: Final = "gen_ai_client_operation_duration_seconds"
INFERENCE_DURATION: Final = "gen_ai_client_inference_duration_seconds"
TOKEN_USAGE: Final = "gen_ai_client_token_usage"  # noqa: S105 - the name of a metric
INVOKE_DURATION: Final = "gen_ai_invoke_agent_duration_seconds"
INVOKE_CALLS: Final = "gen_ai_invoke_agent_inference_calls"
INVOKE_TOOL_CALLS: Final = "gen_ai_invoke_agent_tool_calls"
TOOL_DURATION: Final = "gen_ai_execute_tool_duration_seconds"

M_TRANSITIONS: Final = "surefoot_transitions"
M_TURNS: Final = "surefoot_turns"
M_STEPS: Final = "surefoot_turn_steps"
M_TOOL_CALLS: Final = "surefoot_tool_calls"
M_MODEL_FAILURES: Final = "surefoot_model_failures"
M_GUARDS: Final = "surefoot_guards_tripped"
M_COST: Final = "surefoot_cost"
M_LOOP_LAG: Final = "surefoot_loop_lag_seconds"
M_OWNED: Final = "surefoot_sessions_owned"
M_SPANS_DROPPED: Final = "surefoot_spans_dropped"
M_TELEMETRY_ERRORS: Final = "surefoot_telemetry_errors"
M_REDIS_UP: Final = "surefoot_redis_up"
M_VIOLATIONS: Final = "surefoot_invariant_violations"

METRICS: Final[dict[str, tuple[str, ...]]] = {
    OPERATION_DURATION: (L_OPERATION, L_PROVIDER, L_MODEL, L_ERROR),
    INFERENCE_DURATION: (L_OPERATION, L_PROVIDER, L_MODEL, L_ERROR),
    TOKEN_USAGE: (L_OPERATION, L_PROVIDER, L_MODEL, L_TOKEN_TYPE),
    INVOKE_DURATION: (L_AGENT, L_ERROR),
    INVOKE_CALLS: (L_AGENT,),
    INVOKE_TOOL_CALLS: (L_AGENT,),
    TOOL_DURATION: (L_TOOL, L_ERROR),
    M_TRANSITIONS: ("from", "to"),
    M_TURNS: ("stop_reason",),
    M_STEPS: (L_AGENT,),
    M_TOOL_CALLS: ("tool", "outcome"),
    M_MODEL_FAILURES: ("model", "kind"),
    M_GUARDS: ("guard",),
    M_COST: ("model",),
    M_LOOP_LAG: (),
    M_OWNED: (),
    M_SPANS_DROPPED: ("reason",),
    M_TELEMETRY_ERRORS: (),
    M_REDIS_UP: (),
    M_VIOLATIONS: ("invariant",),
}
"""Every metric and its labels (counters get `_total` from the client library)."""
