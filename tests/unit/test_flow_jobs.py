"""Names of a flow's jobs, and what they are bound to."""

import re
import uuid
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.errors import ConflictError, RejectedError
from gobblin_assets.model.job_ticket import LogId
from gobblin_assets.service.flow_jobs import (
    FlowJobNames,
    check_binding,
    make_job_name,
    strip_template_version,
)
from gobblin_assets.service.flow_store import JobBinding, NamedJob
from gobblin_assets.service.specs import FlowKey

FLOW = uuid.UUID(int=7)
LOGS = {"": LogId(uuid.UUID(int=1)), "other": LogId(uuid.UUID(int=2))}
BINDING = JobBinding(LogId(uuid.UUID(int=1)), "FS:///x.template", "shop", "shop_db", "/data/lake")


@given(group=st.text(min_size=1, max_size=128), name=st.text(min_size=1, max_size=128), node=st.text(max_size=100))
def test_any_flow_gets_names_that_paths_can_have(group: str, name: str, node: str) -> None:
    made = make_job_name(FLOW, FlowKey(group, name), node, 0)
    assert re.fullmatch(r"[a-z][a-z0-9_]{0,47}", made), made


def test_names_differ_by_flow_node_and_generation_and_by_nothing_else() -> None:
    key = FlowKey("sales", "Orders of the day")
    names = {
        make_job_name(flow, key, node, generation)
        for flow in (FLOW, uuid.UUID(int=8))
        for node in ("lake", "Lake")
        for generation in (0, 1)
    }
    assert len(names) == 8
    assert make_job_name(FLOW, key, "lake", 0) == make_job_name(FLOW, key, "lake", 0)
    assert make_job_name(FLOW, key, "lake", 0).startswith("orders_of_the_day_to_lake_")


def test_a_stored_name_stays_whatever_would_be_made_now() -> None:
    names = FlowJobNames(
        *(FLOW, FlowKey("sales", "orders"), [NamedJob("lake", "its_first_name", BINDING)], 0),
        *(LOGS.__getitem__, {"of_others": LOGS["other"]}.get),
    )
    assert names.find_name("lake") == names.offer_name("lake") == "its_first_name"
    assert names.find_name("mirror") is None
    hop = names.list_bound_hops()["lake"]
    assert (hop.source_node, hop.template_uri) == ("shop", "FS:///x.template")
    assert hop.allows_log("")
    assert not hop.allows_log("other")
    assert names.offer_name("mirror") != names.offer_name("lake")
    assert [names.shares_log("of_others", log) for log in ("", "other")] == [False, True]
    assert names.shares_log("of_nobody", "") is None


def test_a_search_reads_the_id_of_each_log_once_and_takes_no_log_without_a_place() -> None:
    asked: list[str] = []

    def read(log: str) -> LogId:
        asked.append(log)
        if log == "edge":
            raise RejectedError("nothing says where it is", field="GOBBLIN_LOG_EDGE_URL")
        return LOGS[log]

    stored = [NamedJob(node, f"to_{node}", BINDING) for node in ("lake", "mirror")]
    hops = FlowJobNames(FLOW, FlowKey("sales", "orders"), stored, 0, read, {}.get).list_bound_hops()
    found = [hop.allows_log(log) for log in ("edge", "other", "") for hop in hops.values()]
    assert found == [False, False, False, False, True, True]
    assert asked == ["edge", "other", ""]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"log_id": LogId(uuid.UUID(int=2))}, "log"),
        ({"template_uri": "FS:///y.template"}, "template"),
        ({"source_node": "other"}, "source"),
        ({"source_place": "other_db"}, "source's place"),
        ({"root": "/elsewhere"}, "root"),
    ],
)
def test_a_bound_name_stands_for_nothing_else(change: dict[str, str], word: str) -> None:
    check_binding("job", BINDING, BINDING)
    with pytest.raises(ConflictError, match=f"its {word} is .*:replan"):
        check_binding("job", BINDING, replace(BINDING, **change))


def test_another_version_of_a_template_is_the_same_template() -> None:
    assert strip_template_version("FS:///pack@3/a/x.template") == "FS:///pack/a/x.template"
    assert strip_template_version("FS:///x.template") == "FS:///x.template"
