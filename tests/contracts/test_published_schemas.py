"""The schemas of a dataset by any store's log: those of its active files, else the last one recorded."""

from dataclasses import replace

from gobblin_assets.commit.published.published_port import ActiveSchema, PublishedSet, PublishedSource, RowsElsewhere
from gobblin_assets.commit.segment import encode_empty
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from tests.support.commit_log import JOB, LogWorld, make_segments, staged_of

OTHER_JOB = JobName("warehouse")


def test_a_publication_without_rows_says_the_columns_where_nothing_else_does(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))

    def publish(name: str, partition: str, *, files: bool, replaces: bool = False) -> None:
        new = log.begin(lease, partition=partition, replaces=replaces)
        attempt = log.register_attempt(new)
        schema = {"name": name}
        empty = encode_empty(role=Role.DATA, partition=partition, file_schema=schema)
        staged = staged_of(attempt, make_segments(attempt, partition=partition, schema=schema) if files else (empty,))
        log.commits.stage(staged)
        log.commits.seal(log.order(new, [staged]))
        log.commits.finish(new.sequence_id, fence=lease.fence)

    def look() -> tuple[list[object], int, list[object], list[str]]:
        found = log.published.find(JOB, DatasetUrn("orders"), role=Role.DATA)
        assert found is not None
        active = log.published.find_active_schemas(JOB, [DatasetUrn("orders")]).get(DatasetUrn("orders"), ())
        partitions = [each.partition for each in log.published.list_partitions(JOB, DatasetUrn("orders"))]
        return list(found.file_schemas), len(found.segments), [each.file_schema for each in active], partitions

    publish("empty", "1", files=False)
    assert look() == ([{"name": "empty"}], 0, [], [])
    publish("other type", "1", files=True)
    assert look() == ([{"name": "other type"}], 1, [{"name": "other type"}], ["1"])
    publish("empty again", "2", files=False)
    assert look() == ([{"name": "other type"}], 1, [{"name": "other type"}], ["1"])
    publish("emptied", "1", files=False, replaces=True)
    assert look() == ([{"name": "emptied"}], 0, [], [])


def test_the_schemas_of_active_files_are_found_with_where_they_are(log: LogWorld) -> None:
    leases = {urn: log.take(log.register(urn)) for urn in ("orders", "items", "empty")}

    def publish(urn: str, schema: object, partition: str, *, replaces: bool = False, finish: bool = True) -> None:
        new = log.begin(leases[urn], partition=partition, replaces=replaces)
        attempt = log.register_attempt(new)
        segments = [*make_segments(attempt, partition=partition, schema=schema)]
        segments += make_segments(attempt, partition=partition, role=Role.QUARANTINE, schema=schema)
        staged = staged_of(attempt, tuple(segments))
        log.commits.stage(staged)
        log.commits.seal(log.order(new, [staged]))
        if finish:
            log.commits.finish(new.sequence_id, fence=leases[urn].fence)

    publish("orders", {"name": "gone"}, "1")
    publish("orders", {"name": "two"}, "1", replaces=True)
    publish("orders", {"name": "two"}, "2")
    publish("orders", {"name": "one"}, "2")
    publish("orders", None, "3")
    publish("orders", {"name": "not yet"}, "4", finish=False)
    publish("items", {"name": "other"}, "")

    found = log.published.find_active_schemas(JOB, [DatasetUrn(each) for each in ("orders", "empty", "nobody")])

    assert set(found) == {"orders"}
    assert sorted(found[DatasetUrn("orders")], key=str) == [
        ActiveSchema({"name": "one"}, "2"),
        ActiveSchema({"name": "two"}, None),
    ]
    assert log.published.find_active_schemas(JOB, [DatasetUrn("items")]) == {
        "items": [ActiveSchema({"name": "other"}, "")]
    }
    assert log.published.find_active_schemas(OTHER_JOB, [DatasetUrn("items")]) == {}


def test_what_the_source_said_is_found_with_the_files(log: LogWorld) -> None:
    def look(urn: str, job: JobName = JOB) -> PublishedSource | None:
        return log.published.find_source(job, DatasetUrn(urn), role=Role.DATA)

    lease = log.take(log.register("orders"))
    log.register("items")
    assert look("orders") == PublishedSource(PublishedSet(0, (), ()), None, {})
    built = log.build(lease, schema={"name": "one"})
    said = {"source_columns": [["id", "int8"], ["a b", "text"]], "source_facts": {"kept": {"key": ["id", None]}}}
    log.commits.seal(replace(built.order, details=said))
    assert look("orders") == PublishedSource(PublishedSet(0, (), ()), None, {})
    log.commits.finish(built.sequence_id, fence=lease.fence)

    files = log.published.find(JOB, DatasetUrn("orders"), role=Role.DATA)
    assert files is not None
    assert len(files.segments) == 1
    columns = {"id": "int8", "a b": "text"}
    assert look("orders") == PublishedSource(files, columns, {"kept": {"key": ["id", None]}})
    assert look("items") == PublishedSource(PublishedSet(0, (), ()), None, {})
    assert look("nobody") is None
    assert look("orders", OTHER_JOB) is None


def test_rows_in_no_file_are_counted_with_where_they_are(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))

    def publish(rows: int, *, role: Role = Role.DATA, finish: bool = True) -> None:
        new = log.begin(lease)
        attempt = log.register_attempt(new)
        empty = encode_empty(role=role, partition="", file_schema={"name": "one"})
        staged = staged_of(attempt, (replace(empty, row_count=rows),))
        log.commits.stage(staged)
        order = log.order(new, [staged])
        log.commits.seal(replace(order, details={**order.details, "uri": "jdbc:warehouse/public.orders"}))
        if finish:
            log.commits.finish(new.sequence_id, fence=lease.fence)

    assert log.published.find_rows_elsewhere(JOB, DatasetUrn("orders")) is None
    publish(0)
    publish(5, role=Role.QUARANTINE)
    assert log.published.find_rows_elsewhere(JOB, DatasetUrn("orders")) is None
    publish(3)
    publish(4)
    publish(5, finish=False)

    assert log.published.find_rows_elsewhere(JOB, DatasetUrn("orders")) == RowsElsewhere(
        "jdbc:warehouse/public.orders", 7
    )
    found = log.published.find(JOB, DatasetUrn("orders"), role=Role.DATA)
    assert found is not None
    assert found.segments == ()
    assert log.published.find_rows_elsewhere(OTHER_JOB, DatasetUrn("orders")) is None
