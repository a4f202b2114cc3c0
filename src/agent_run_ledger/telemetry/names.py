"""The names under which runs are told to OpenTelemetry: those of its conventions, and ours."""

from __future__ import annotations

from typing import Final

# GenAI semantic conventions, v1.41.0 of open-telemetry/semantic-conventions (status: Development).
OPERATION: Final = "gen_ai.operation.name"
INVOKE_WORKFLOW: Final = "invoke_workflow"
WORKFLOW: Final = "gen_ai.workflow.name"
PROVIDER: Final = "gen_ai.provider.name"
MODEL: Final = "gen_ai.response.model"
TOKEN_TYPE: Final = "gen_ai.token.type"
TOKEN_USAGE: Final = "gen_ai.client.token.usage"
TOKEN_USAGE_BUCKETS: Final = (
    1, 4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216, 67_108_864,
)  # fmt: skip
"""Powers of four, as the conventions ask for."""
USAGE: Final = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
}
"""Attribute of a span by field of kernel.usage.Usage."""

# General conventions, stable.
ERROR_TYPE: Final = "error.type"
OTHER: Final = "_OTHER"

# Ours.
STEP_OPERATION: Final = "step"
RUN_ID: Final = "agent_run_ledger.run.id"
RUN_ATTEMPT: Final = "agent_run_ledger.run.attempt"
RUN_GENERATION: Final = "agent_run_ledger.run.generation"
RUN_RESUMED: Final = "agent_run_ledger.run.resumed"
RUN_TAKEOVER: Final = "agent_run_ledger.run.takeover"
RUN_STATE: Final = "agent_run_ledger.run.state"
STEP: Final = "agent_run_ledger.step.name"
STEP_TRY: Final = "agent_run_ledger.step.try"
STEP_AGAIN: Final = "agent_run_ledger.step.will_be_tried_again"
OUTCOME: Final = "agent_run_ledger.step.outcome"
RECORD_ID: Final = "agent_run_ledger.record.id"
REPLAYED: Final = "agent_run_ledger.replayed"
ABANDONED_EVENT: Final = "agent_run_ledger.call.abandoned"
UNKNOWN: Final = "agent_run_ledger.call.outcome_unknown"
VERDICT_EVENT: Final = "agent_run_ledger.breaker.verdict"
VERDICT_LEVEL: Final = "agent_run_ledger.breaker.level"
VERDICT_RULE: Final = "agent_run_ledger.breaker.rule"
STEPS: Final = "agent_run_ledger.steps"
STEP_DURATION: Final = "agent_run_ledger.step.duration"
