"""The wire format of Rest.li 2.0, as far as flows need it: keys in paths, FlowConfigs, FlowStatuses, errors.

Rest.li writes a compound key as ``(flowGroup:mygroup,flowName:myflow1)``. In a value, ``( ) , : '`` are
percent-encoded, and two quotes stand for the empty text. Properties of a flow are texts; the schemas of its templates
say what they mean.
"""

import datetime as dt
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, unquote

from gobblin_assets.errors import RejectedError
from gobblin_assets.service.api.problems import MalformedRequestError, Problem
from gobblin_assets.service.specs import FlowKey, parse_flow_key
from gobblin_assets.service.statuses import FlowStatus, JobStatus
from gobblin_assets.service.template_parameters import read_texts

PROTOCOL_VERSION: Final = "2.0.0"
SOURCE_PROPERTY: Final = "gobblin.flow.sourceIdentifier"
DESTINATION_PROPERTY: Final = "gobblin.flow.destinationIdentifier"
TIMEZONE_PROPERTY: Final = "gobblin.flow.timezone"

_TEMPLATE_FIELDS: Final = ("templateUris", "templateNames", "templateName")
_CRON: Final = "cronSchedule"
_RUN_NOW: Final = "runImmediately"
_FIELDS: Final = frozenset({"flowName", "flowGroup", "schedule", _RUN_NOW, "properties", *_TEMPLATE_FIELDS})
_PARTS: Final = re.compile(r"([^(),:']+):((?:''|[^(),:'])*)")


def read_restli_key(text: str) -> FlowKey:
    """The key as it stands in a path, with its escapes. MalformedRequestError for another text.

    A client may have encoded the key once more as a whole, parentheses and all.
    """
    found = _read_record(unquote(text) if text.upper().startswith("%28") else text)
    if found is None:
        raise MalformedRequestError(
            f"expected (flowGroup:GROUP,flowName:NAME), found {text[:300]!a}",
            field="key",
            hint="Percent-encode ( ) , : and ' in the names.",
        )
    return parse_flow_key(found["flowGroup"], found["flowName"])


def _read_record(text: str) -> dict[str, str] | None:
    if not (text.startswith("(") and text.endswith(")")):
        return None
    found = {}
    for part in text[1:-1].split(","):
        match = _PARTS.fullmatch(part)
        if match is None:
            return None
        name, value = match.groups()
        found[unquote(name)] = "" if value == "''" else unquote(value)
    return found if found.keys() == {"flowGroup", "flowName"} else None


def write_restli_key(key: FlowKey) -> str:
    return f"(flowGroup:{_write_value(key.group)},flowName:{_write_value(key.name)})"


def _write_value(text: str) -> str:
    return quote(text, safe="") if text else "''"


def read_flow(data: object, schemas_of: Callable[[Sequence[str]], Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """The options of a FlowConfig of ours, for ``read_flow_config``.

    ``schemas_of``: the JSON Schemas of the parameters of these templates; of all templates where none is named.
    """
    if not isinstance(data, Mapping):
        raise MalformedRequestError("expected a JSON object", field="body", hint='Such as {"flowName": "…", …}.')
    for name in data:
        if name not in _FIELDS:
            raise RejectedError(
                "is not a field of a FlowConfig", field=str(name)[:100], hint=f"Known: {', '.join(sorted(_FIELDS))}."
            )
    properties = data.get("properties", {})
    if not isinstance(properties, Mapping) or not all(isinstance(each, str) for each in properties.values()):
        raise RejectedError(
            "expected a map of texts", field="properties", hint='Write each value in quotes, such as {"rows": "5"}.'
        )
    uris = tuple(uri for name in _TEMPLATE_FIELDS for uri in _read_uris(name, data.get(name, "")))
    options: dict[str, Any] = {
        "flow_group": data.get("flowGroup", ""),
        "flow_name": data.get("flowName", ""),
        "template_uris": uris,
        "run_immediately": data.get("runImmediately"),
        **_read_schedule(data.get("schedule", "")),
    }
    rest = dict(properties)
    if zone := rest.pop(TIMEZONE_PROPERTY, ""):
        options["timezone"] = zone
    if source := rest.pop(SOURCE_PROPERTY, ""):
        options["source"] = source
    if destinations := rest.pop(DESTINATION_PROPERTY, ""):
        options["destinations"] = _split(destinations)
    options["parameters"] = read_texts(rest, schemas_of(uris))
    return options


def _read_schedule(value: object) -> dict[str, Any]:
    """A text, or the record Schedule."""
    if not isinstance(value, Mapping):
        return {"schedule": value}
    unknown = sorted(str(name) for name in value.keys() - {_CRON, _RUN_NOW})
    if unknown:
        raise RejectedError(
            "is not a field of a Schedule", field=f"schedule.{unknown[0][:100]}", hint=f"Known: {_CRON}, {_RUN_NOW}."
        )
    options = {"schedule": value.get(_CRON, "")}
    if value.get(_RUN_NOW) is not None:
        options["run_immediately"] = value[_RUN_NOW]
    return options


def _read_uris(name: str, value: object) -> list[str]:
    if not isinstance(value, str):
        raise RejectedError("expected a text", field=name, hint="Write URIs with commas between them.")
    return _split(value)


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def write_flow(options: Mapping[str, Any]) -> dict[str, Any]:
    """The FlowConfig of Rest.li for the options of one of ours."""
    properties = {
        name: value if isinstance(value, str) else json.dumps(value) for name, value in options["parameters"].items()
    }
    if options["source"] is not None:
        properties[SOURCE_PROPERTY] = options["source"]["node"]
    if options["destinations"]:
        properties[DESTINATION_PROPERTY] = ",".join(each["node"] for each in options["destinations"])
    if "timezone" in options:
        properties[TIMEZONE_PROPERTY] = options["timezone"]
    schedule = options["schedule"]
    found = {
        "flowName": options["flow_name"],
        "flowGroup": options["flow_group"],
        "schedule": {_CRON: schedule, _RUN_NOW: bool(options["run_immediately"])} if schedule else "",
        "templateUris": ",".join(options["template_uris"]),
        "properties": properties,
    }
    if options["run_immediately"] is not None:
        found["runImmediately"] = options["run_immediately"]
    return found


def write_status(status: FlowStatus) -> dict[str, Any]:
    """The record FlowStatus. A time that is not known is left out."""
    return _without_none(
        {
            "flowName": status.flow.name,
            "flowGroup": status.flow.group,
            "executionStartTime": _epoch_ms(status.started_at),
            "executionEndTime": _epoch_ms(status.ended_at),
            "executionStatus": status.status.value,
            "message": status.message,
            "jobStatuses": [_write_job(each) for each in status.jobs],
        }
    )


def _write_job(job: JobStatus) -> dict[str, Any]:
    return _without_none(
        {
            "flowName": job.flow.name,
            "flowGroup": job.flow.group,
            "jobName": job.job_name,
            "jobGroup": job.job_group,
            "executionStartTime": _epoch_ms(job.started_at),
            "executionEndTime": _epoch_ms(job.ended_at),
            "executionStatus": job.status.value,
            "message": job.message,
            "processedCount": job.processed_count,
            "lowWatermark": job.low_watermark,
            "highWatermark": job.high_watermark,
        }
    )


def _without_none(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if value is not None}


def _epoch_ms(moment: dt.datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1000)


def write_error(problem: Problem) -> dict[str, Any]:
    """The record ErrorResponse."""
    details = {name: text for name, text in (("field", problem.field), ("hint", problem.hint)) if text}
    said = f"{problem.field}: {problem.detail}" if problem.field else problem.detail
    return {
        "status": problem.status,
        "message": f"{said}. {problem.hint}"
        if problem.hint and not said.endswith(".")
        else f"{said} {problem.hint}".strip(),
        "exceptionClass": problem.family,
        "errorDetails": details,
    }
