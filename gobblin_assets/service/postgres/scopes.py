"""The flows that a user may see, as a predicate."""

from typing import Final

from gobblin_assets.db.statement_texts import to_jsonb
from gobblin_assets.service.access import EVERY_FLOW, FlowPattern, FlowScope

_FITS: Final = """
    SELECT FROM jsonb_to_recordset(CAST(:{} AS jsonb)) AS p (flow_group text, flow_name text, is_prefix boolean)
     WHERE (p.flow_group IS NULL OR p.flow_group = f.flow_group)
       AND CASE WHEN p.is_prefix THEN starts_with(f.flow_name, p.flow_name) ELSE f.flow_name = p.flow_name END
"""

IN_SCOPE: Final = f"""
    (:sees_all OR (EXISTS ({_FITS.format("allowed")}) AND NOT EXISTS ({_FITS.format("denied")})))
"""
"""Of ``f``, a flow, with the arguments that ``scope_arguments`` gives."""


def scope_arguments(scope: FlowScope) -> dict[str, object]:
    return {
        "sees_all": scope == EVERY_FLOW,
        "allowed": to_jsonb([_pattern_to_json(each) for each in scope.allowed]),
        "denied": to_jsonb([_pattern_to_json(each) for each in scope.denied]),
    }


def _pattern_to_json(pattern: FlowPattern) -> dict[str, object]:
    return {"flow_group": pattern.group, "flow_name": pattern.name, "is_prefix": pattern.is_prefix}
