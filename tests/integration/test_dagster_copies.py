"""Copies as Dagster assets: runs, partitions, checks, sensors and reports, in this process and without Spark."""

import json
import os
from pathlib import Path

import dagster as dg
import pytest

from gobblin_assets import failpoints
from gobblin_assets.failpoints import Failpoint
from tests.support import dagster_mirror
from tests.support.command_lake import invoke
from tests.support.dagster_mirror import PHOTOS, Mirror
from tests.support.spark import wait_until

pytestmark = pytest.mark.turns(of=8)

mirror = dagster_mirror.mirror


@pytest.mark.core
def test_a_dataset_is_materialized_and_its_event_tells_of_files(mirror: Mirror) -> None:
    for name in ("a", "b", "c"):
        mirror.write(f"photos/{name}.txt", name)
    assert mirror.run().success
    mirror.write("photos/a.txt", "longer", at_s=2_000)
    mirror.write("photos/d.txt", "d")
    (mirror.folder / "in/photos/b.txt").unlink()
    assert mirror.run().success

    assert mirror.copied() == {"photos/a.txt": "longer", "photos/c.txt": "c", "photos/d.txt": "d"}
    shown = {name: value.value for name, value in mirror.events()[-1].metadata.items()}
    named = ("files", "bytes", "replaced", "removed", "waiting")
    assert [shown[f"gobblin/{name}"] for name in named] == [2, 7, 1, 1, 0]
    assert shown["dagster/uri"] == f"file://{mirror.folder}/out/photos"
    assert not [name for name in shown if "rows" in name or "watermark" in name]
    assert "dagster/row_count" not in shown


def test_the_tree_that_is_copied_lies_upstream_and_is_observed_once_in_a_run(mirror: Mirror) -> None:
    mirror.options = {"datasets": [{"urn": "photos"}, {"urn": "album", "path": "photos", "to": "album"}]}
    mirror.write("photos/a.txt", "a")
    assert mirror.run().success
    graph = mirror.definitions.resolve_asset_graph()
    (tree,) = graph.get(PHOTOS).parent_keys
    assert graph.get(dg.AssetKey(["mirror", "album"])).parent_keys == {tree}
    place = str(mirror.folder / "in/photos")
    assert (graph.get(tree).kinds, graph.get(tree).metadata["dagster/uri"]) == ({"file"}, place)
    (record,) = mirror.instance.fetch_observations(tree, limit=9).records
    assert record.asset_observation is not None
    assert record.asset_observation.metadata["dagster/uri"].value == place
    assert mirror.run().success
    assert len(mirror.instance.fetch_observations(tree, limit=9).records) == 2


def test_a_failed_dataset_fails_alone_and_says_why(mirror: Mirror) -> None:
    mirror.options = {"datasets": [{"urn": "photos"}, {"urn": "links"}]}
    mirror.write("photos/a.txt", "a")
    (mirror.folder / "in/links").mkdir()
    (mirror.folder / "in/links/one").symlink_to("elsewhere")
    result = mirror.run()

    assert not result.success
    (failure,) = [each for each in result.all_events if each.event_type_value == "STEP_FAILURE"]
    assert "links: " in str(failure.event_specific_data)
    assert mirror.copied() == {"photos/a.txt": "a"}
    assert len(mirror.events()) == 1


def test_an_audit_compares_both_sides_and_names_what_differs(mirror: Mirror) -> None:
    mirror.options = {"datasets": [{"urn": "photos", "files_per_run_max": 1}]}
    mirror.write("photos/a.txt", "a")
    mirror.write("photos/b.txt", "b")
    before = mirror.audit()
    assert (before.passed, before.metadata["differing_paths"].value) == (False, 3)
    mirror.options = {"datasets": [{"urn": "photos"}]}
    assert mirror.run().success
    assert mirror.audit().passed

    (mirror.folder / "out/photos/b.txt").write_text("tampered", encoding="utf-8")
    after = mirror.audit()
    assert not after.passed
    assert after.description == "paths differ (1): b.txt"
    assert len(mirror.copied()) == 2


def test_an_audit_is_not_bound_by_what_the_job_writes_for_one_run(mirror: Mirror) -> None:
    mirror.options = {
        "datasets": [{"urn": "photos"}, {"urn": "videos"}],
        "files_per_run_max": 1,
        "bytes_per_run_max": 10,
    }
    for name in ("photos", "videos"):
        mirror.write(f"{name}/a.txt", "a")
        assert mirror.run().success or name == "photos"
    assert [each.passed for each in mirror.audits()] == [True, True]

    for name in ("photos", "videos"):
        mirror.write(f"{name}/a.txt", "changed", at_s=2_000)
        mirror.write(f"{name}/b.txt", "a new one")
    assert [each.passed for each in mirror.audits()] == [False, False]
    assert [each.metadata["differing_paths"].value for each in mirror.audits()] == [2, 2]


def test_an_audit_looks_into_directories_that_runs_skip(mirror: Mirror) -> None:
    mirror.options = {"datasets": [{"urn": "photos", "skip_unchanged_directories": True}]}
    mirror.write("photos/album/a.txt", "a")
    for directory in ("photos/album", "photos"):
        os.utime(mirror.folder / "in" / directory, (1_000, 1_000))
    assert mirror.run().success
    assert mirror.audit().passed

    (mirror.folder / "out/photos/album/a.txt").write_text("tampered", encoding="utf-8")
    assert mirror.run().success
    assert mirror.copied() == {"photos/album/a.txt": "tampered"}
    assert not mirror.audit().passed


@pytest.mark.core
def test_a_publication_that_a_dead_run_left_is_finished_by_the_recovery_sensor(mirror: Mirror) -> None:
    class Died(BaseException):
        pass

    def die(reached: Failpoint) -> None:
        if reached is Failpoint.STEP_AFTER:
            raise Died

    mirror.write("photos/a.txt", "a")
    assert mirror.run().success
    mirror.write("photos/a.txt", "longer", at_s=2_000)
    mirror.write("photos/b.txt", "b")
    with failpoints.install(die), pytest.raises(Died):
        mirror.run(raise_on_error=True)
    ticked = mirror.tick(None, "mirror_recovery_sensor")

    assert len(ticked.run_requests or ()) == 1
    assert mirror.copied() == {"photos/a.txt": "longer", "photos/b.txt": "b"}
    shown = {name: value.value for name, value in mirror.events()[-1].metadata.items()}
    assert (shown["gobblin/recovered"], shown["gobblin/replaced"]) == (True, 1)


def test_a_stream_finds_anew_publishes_what_is_new_and_tells_of_a_failure_once(mirror: Mirror) -> None:
    manifest, files = mirror.folder / "files.jsonl", dg.AssetKey(["mirror", "files"])
    mirror.options = {"finder": {"kind": "manifest", "path": str(manifest)}}
    source, away = mirror.folder / "in", mirror.folder / "away"
    for name in ("a", "b", "c"):
        mirror.write(f"{name}.txt", name)

    def name_files(names: str) -> None:
        manifest.write_text("".join(json.dumps({"path": f"{name}.txt"}) + "\n" for name in names), encoding="utf-8")

    def wait_for_runs() -> None:
        """Until two more runs have begun and ended."""
        begun = mirror.count_runs()
        wait_until(lambda: mirror.count_runs() > begun + 2, "two more runs")

    name_files("a")
    said = mirror.follow(
        "mirror_whole",
        lambda: wait_until(lambda: len(mirror.events(files)) == 1, "the first publication"),
        wait_for_runs,
        lambda: source.rename(away),
        lambda: wait_until(lambda: mirror.checked(files) is False, "a failed check"),
        wait_for_runs,
        lambda: away.rename(source),
        lambda: wait_until(lambda: mirror.checked(files) is True, "a passed check"),
        wait_for_runs,
        lambda: name_files("ab"),
        lambda: wait_until(lambda: len(mirror.events(files)) == 2, "the second publication"),
    )

    assert mirror.copied() == {"a.txt": "a", "b.txt": "b"}
    assert len(mirror.events(files)) == 2, "a run that finds nothing new publishes nothing"
    assert sum("files: " in line and str(source) in line for line in said) == 1, said


@pytest.mark.thorough
def test_a_run_follows_its_datasets_for_a_while(mirror: Mirror) -> None:
    mirror.write("photos/a.txt", "a")
    configuration = {"ops": {"mirror": {"config": {"stream_s": 0.5}}}}
    assert mirror.run(run_config=configuration).success
    assert mirror.copied() == {"photos/a.txt": "a"}


def test_the_command_line_tells_dagster_of_copies(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(mirror.folder))
    mirror.write("photos/a.txt", "a")
    path = mirror.folder / "mirror.yaml"
    path.write_text(json.dumps(mirror.job), encoding="utf-8")
    found = invoke("run", str(path), "--dagster=wait")
    assert found.exit_code == 0, found.output
    (event,) = mirror.events()
    assert event.metadata["gobblin/files"].value == 1
    assert invoke("report", str(path), "--all").exit_code == 0
    assert len(mirror.events()) == 2


class TestFoundSets:
    """A stream of dated directories."""

    @pytest.fixture
    def events(self, mirror: Mirror) -> Mirror:
        mirror.options = {
            "finder": {"kind": "stream", "pattern": "topics/*/%Y-%m-%d"},
            "defaults": {"partitions": {"kind": "daily", "start": "2026-01-01"}},
            "trigger": {"marker": "_SUCCESS"},
        }
        for day in ("2025-12-31", "2026-01-01", "2026-01-02"):
            mirror.write(f"topics/clicks/{day}/part-0", day)
        return mirror

    @pytest.mark.core
    def test_windows_are_partitions_and_one_is_copied_by_itself(self, events: Mirror) -> None:
        assert events.run("mirror_daily", partition_key="2026-01-02").success
        assert events.copied() == {"clicks/2026-01-02/part-0": "2026-01-02"}
        clicks = dg.AssetKey(["mirror", "topics%2Fclicks"])
        assert [event.partition for event in events.events(clicks)] == ["2026-01-02"]

    @pytest.mark.thorough
    def test_of_a_range_each_window_is_copied_by_itself_and_one_without_files_fails_alone(self, events: Mirror) -> None:
        tags = {
            "dagster/asset_partition_range_start": "2026-01-01",
            "dagster/asset_partition_range_end": "2026-01-03",
        }
        result = events.run("mirror_daily", tags=tags)
        assert not result.success
        clicks = dg.AssetKey(["mirror", "topics%2Fclicks"])
        assert {event.partition for event in events.events(clicks)} == {"2026-01-01", "2026-01-02"}
        (failure,) = [each for each in result.all_events if each.event_type_value == "STEP_FAILURE"]
        assert "has no file set '2026-01-03'" in str(failure.event_specific_data)

    def test_a_source_that_is_away_leaves_what_was_found_before(self, events: Mirror, tmp_path: Path) -> None:
        before = {spec.key for spec in events.definitions.resolve_all_asset_specs()}
        (tmp_path / "in").rename(tmp_path / "away")
        assert {spec.key for spec in events.definitions.resolve_all_asset_specs()} == before

    @pytest.mark.thorough
    def test_a_dataset_that_is_gone_fails_and_the_others_are_copied(self, mirror: Mirror) -> None:
        mirror.options = {"finder": {"kind": "glob", "pattern": "*"}}
        mirror.write("photos/a.txt", "a")
        mirror.write("videos/b.txt", "b")
        definitions = mirror.definitions
        (mirror.folder / "in/videos").rename(mirror.folder / "away")
        result = definitions.resolve_job_def("mirror_whole").execute_in_process(
            instance=mirror.instance, raise_on_error=False
        )
        (failure,) = [each for each in result.all_events if each.event_type_value == "STEP_FAILURE"]
        assert "the source has nothing of videos now" in str(failure.event_specific_data)
        assert mirror.copied() == {"photos/a.txt": "a"}

    def test_keys_and_datasets_that_come_later_are_found_by_the_sensor(self, events: Mirror) -> None:
        events.options["defaults"] = {"partitions": {"kind": "dynamic", "name": "days"}}
        away = events.folder / "away"
        (events.folder / "in").rename(away)
        without = events.definitions
        assert list(without.resolve_all_asset_specs()) == []
        skipped = events.tick(None, "mirror_discovery_sensor", without)
        assert f"{events.folder}/in" in str(skipped.skip_message)
        away.rename(events.folder / "in")
        changed = events.tick(None, "mirror_discovery_sensor", without)
        assert "reload the code location" in str(changed.skip_message)

        adding = events.tick(None, "mirror_discovery_sensor")
        (added,) = adding.dynamic_partitions_requests or ()
        assert str(adding.skip_message).startswith("Added 2025-12-31, 2026-01-01")
        assert (added.partitions_def_name, len(added.partition_keys)) == ("days", 3)
        assert not events.tick(None, "mirror_discovery_sensor").dynamic_partitions_requests
        assert events.run("mirror_dynamic", partition_key="2026-01-01").success

    def test_a_set_is_asked_for_when_its_marker_is_there_and_again_when_it_changes(self, events: Mirror) -> None:
        ticks = [events.tick(None)]
        events.write("topics/clicks/2026-01-02/_SUCCESS", "")
        ticks += [events.tick(ticks[-1].cursor)]
        ticks += [events.tick(ticks[-1].cursor)]
        events.write("topics/clicks/2026-01-02/_SUCCESS", "again")
        ticks += [events.tick(ticks[-1].cursor)]
        asked = [[each.partition_key for each in ticked.run_requests or ()] for ticked in ticks]
        assert asked == [[], ["2026-01-02"], [], ["2026-01-02"]]
        assert str(ticks[0].skip_message).startswith("2 not ready (the marker, the directory")
        assert events.copied()["clicks/2026-01-02/_SUCCESS"] == "again"

    def test_a_tick_adds_the_dynamic_keys_of_the_sets_that_it_asks_for(self, events: Mirror) -> None:
        events.options["defaults"] = {"partitions": {"kind": "dynamic", "name": "days"}}
        for day in ("2026-01-01", "2026-01-02"):
            events.write(f"topics/clicks/{day}/_SUCCESS", "")
        first = events.tick(None)
        second = events.tick(first.cursor)
        (added,) = first.dynamic_partitions_requests or ()
        assert added.partition_keys == ["2026-01-02"]
        asked = [[each.partition_key for each in ticked.run_requests or ()] for ticked in (first, second)]
        assert asked == [["2026-01-02"], ["2026-01-01"]]
        assert {"clicks/2026-01-01/_SUCCESS", "clicks/2026-01-02/_SUCCESS"} <= events.copied().keys()

    def test_windows_after_the_last_one_are_left_out_and_the_others_are_copied(self, events: Mirror) -> None:
        events.options["defaults"] = {"partitions": {"kind": "daily", "start": "2026-01-01", "end": "2026-01-02"}}
        for day in ("2026-01-01", "2026-01-02"):
            events.write(f"topics/clicks/{day}/_SUCCESS", "")
        ticked = events.tick(None)
        assert [each.partition_key for each in ticked.run_requests or ()] == ["2026-01-01"]
        assert "clicks/2026-01-01/_SUCCESS" in events.copied()

    def test_a_stream_tells_that_a_set_is_away_and_that_it_is_back(self, events: Mirror) -> None:
        clicks, day = dg.AssetKey(["mirror", "topics%2Fclicks"]), "2026-01-02"
        place, away = events.folder / "in/topics/clicks" / day, events.folder / "away"
        events.follow(
            "mirror_daily",
            lambda: wait_until(lambda: len(events.events(clicks)) == 1, "the first publication"),
            lambda: place.rename(away),
            lambda: wait_until(lambda: events.checked(clicks, day) is False, "a failed check"),
            lambda: away.rename(place),
            lambda: wait_until(lambda: events.checked(clicks, day) is True, "a passed check"),
            partition_key=day,
        )
        assert [event.partition for event in events.events(clicks)] == [day]
