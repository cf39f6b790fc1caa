"""Keeps Dagster's line on outputs that were not yielded out of a step's log.

All events of a step are logged as they come, never yielded, so Dagster would name every check as missing.
"""

import logging
from typing import Final

import dagster as dg

_SAID_OF_OUTPUTS: Final = "did not yield or return expected outputs"


class _WithoutExpectedOutputs(logging.Filter):
    def __init__(self, op_name: str) -> None:
        super().__init__()
        self._begins = f"op '{op_name}' {_SAID_OF_OUTPUTS}"

    def filter(self, record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(self._begins)


def leave_out_expected_outputs(context: dg.AssetExecutionContext) -> None:
    """Keep that line out of this step's log, which ends with the step."""
    context.log.addFilter(_WithoutExpectedOutputs(str(context.op_execution_context.node_handle)))
