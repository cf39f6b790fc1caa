"""A tree belongs to one job: whichever names a run chooses, and in whatever words it names the destination."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.destinations.claims import WORK_NAME, claim_path
from gobblin_assets.errors import ErrorFamily, RejectedError
from gobblin_assets.failpoints import Failpoint, install
from tests.support import copy_lake
from tests.support.copy_lake import CopyLake, CopyWorld, Open, files_of, look_at, opening
from tests.support.database_pool import DatabasePool
from tests.support.postgres import migrated_database

pytestmark = pytest.mark.turns(of=8)

job = copy_lake.job

NAME: Final = "mine/logs/app/today.log"
"""A name of the inner job, which the outer one's source has as well."""


@pytest.fixture
def lake(database_url: str, tmp_path: Path) -> CopyLake:
    made = CopyLake(database_url, str(tmp_path))
    made.make_source()
    made.write(NAME, 3)
    return made


def inner_of(lake: CopyLake, at: str = "lake/mine") -> dict[str, Any]:
    return {"job": "inner", "destination": f"{lake.directory}/{at}", "datasets": [{"urn": "logs/app"}]}


def run(world: CopyWorld) -> None:
    assert not world.run().failed


def refuse(world: CopyWorld, text: str = "to which the job 'inner' copies") -> str:
    """Check that the run, or each of its datasets, is refused, and that no published name changes; what was said."""
    originals = files_of(world.lake.tree)
    try:
        report = world.run()
    except RejectedError as error:
        said = {str(error)}
    else:
        assert {each.error_family for each in report.failed} == {ErrorFamily.REJECTED}, report
        said = {str(each.error) for each in report.failed}
    assert all(each.startswith("destination: ") and text in each for each in said), said
    assert files_of(world.lake.tree) == originals
    return " ".join(said)


def choosing(how: str, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of the job, and of its datasets, that make it publish the name and look at little else."""
    match how:
        case "include":
            return {"datasets": []}, {"include": ["/mine/logs/**"]}
        case "exclude":
            return {"datasets": []}, {"exclude": [f"{WORK_NAME}/"]}
        case "manifest":
            manifest = folder / "manifest.jsonl"
            manifest.write_text(json.dumps({"path": NAME}) + "\n")
            return {"datasets": [], "finder": {"kind": "manifest", "path": str(manifest)}}, {}
        case _:
            return {"datasets": [{"urn": "logs/app", "path": "mine/logs/app", "to": "mine/logs/app"}]}, {}


WAYS: Final = ("include", "exclude", "manifest", "dataset")


@pytest.mark.rotating(of=3)
@pytest.mark.core
@pytest.mark.parametrize("how", WAYS)
def test_a_tree_inside_is_found_whatever_the_first_run_chooses(
    lake: CopyLake, job: Open, tmp_path: Path, how: str
) -> None:
    """It is found before anything is written, so that the inner job goes on."""
    run(job(inner_of(lake)))
    options, defaults = choosing(how, tmp_path)

    refuse(job(options, **defaults))

    assert not (lake.tree / WORK_NAME).exists()
    lake.write("logs/app/today.log", 2)
    run(job(inner_of(lake)))


@pytest.mark.rotating(of=3)
@pytest.mark.core
@pytest.mark.parametrize("at", ["lake", "lake/albums", "lake/other/deep"])
def test_a_tree_belongs_to_one_job(lake: CopyLake, job: Open, at: str) -> None:
    run(job())

    refuse(job({"job": "second", "destination": f"{lake.directory}/{at}"}), "to which the job 'crash' copies")


@pytest.mark.parametrize("to", ["", "mine", "mine/deep"])
def test_a_tree_of_another_job_below_is_left_alone(lake: CopyLake, job: Open, to: str) -> None:
    run(job(inner_of(lake)))

    refuse(job({"datasets": [{"urn": "albums", "to": to}]}, deletes="all"))


def test_a_tree_inside_is_found_where_nothing_of_it_is_chosen(lake: CopyLake, job: Open) -> None:
    run(job(inner_of(lake, "lake/far/away")))

    refuse(job({"datasets": [{"urn": "albums"}]}))


@pytest.mark.parametrize("how", WAYS)
def test_a_tree_that_was_moved_inside_is_found_on_the_way_to_a_name(
    lake: CopyLake, job: Open, tmp_path: Path, how: str
) -> None:
    run(job({"datasets": [{"urn": "albums"}]}))
    run(job(inner_of(lake, "other")))
    shutil.move(tmp_path / "other", lake.tree / "mine")
    options, defaults = choosing(how, tmp_path)

    refuse(
        job(options, deletes="all", **defaults), "" if how == "dataset" else "another copy's destination lies inside"
    )

    run(job({"datasets": [{"urn": "albums"}]}))


@pytest.mark.parametrize("to", ["albums", "albums/x"])
def test_a_tree_inside_a_dataset_is_no_content(lake: CopyLake, job: Open, tmp_path: Path, to: str) -> None:
    """The hint for a copied destination of rows would say: remove its identity."""
    run(job({"datasets": [{"urn": "albums"}]}))
    run(job(inner_of(lake, "other")))
    shutil.copytree(tmp_path / "other", lake.tree / to, dirs_exist_ok=True)

    said = refuse(job({"datasets": [{"urn": "albums"}]}, deletes="all"), str(lake.tree / to))

    assert "remove" not in said
    assert "rows" not in said
    assert Path(claim_path(str(lake.tree / to))).exists()


@pytest.mark.parametrize("at", ["2026", "2026/01", "2026/01/02"])
@pytest.mark.parametrize("what", ["copy", "rows"])
def test_a_tree_between_a_dataset_and_its_file_sets(lake: CopyLake, job: Open, at: str, what: str) -> None:
    lake.write("clicks/2026/01/02/a", 1)
    lake.write("clicks/2026/01/03/a", 1)
    daily = {"datasets": [], "finder": {"kind": "stream", "pattern": "*/%Y/%m/%d"}}
    run(job(daily))
    inside = lake.tree / "clicks" / at
    if what == "copy":
        (inside / WORK_NAME).mkdir()
        Path(claim_path(str(inside))).write_text('{"job": "inner"}')
    else:
        (inside / ".gobblin-destination.json").write_text("{}")
    for day in ("02", "03"):
        lake.write(f"clicks/2026/01/{day}/a", 2)
    originals = look_at(lake.tree)

    failed = job(daily).run().failed

    assert {each.error_family for each in failed} == {ErrorFamily.REJECTED}
    assert len(failed) == (1 if at.endswith("02") else 2)
    changed = {name for name, found in look_at(lake.tree).items() if originals[name] != found}
    assert changed == ({"clicks/2026/01/03/a"} if at.endswith("02") else set())


@pytest.mark.parametrize("at", ["lake/mine", "lake/albums", "lake/far/away"])
def test_a_job_that_starts_later_inside_writes_nothing(lake: CopyLake, job: Open, tmp_path: Path, at: str) -> None:
    run(job({"datasets": [{"urn": "albums"}]}))
    originals = set(lake.tree.rglob("*"))

    refuse(job(inner_of(lake, at)), "to which the job 'crash' copies")

    assert set(lake.tree.rglob("*")) == originals
    run(job({"datasets": [{"urn": "albums"}]}))


@pytest.mark.parametrize("first", ["inner", "outer"])
def test_a_destination_behind_a_link(lake: CopyLake, job: Open, tmp_path: Path, first: str) -> None:
    """The link leads into the tree, so that no name in its own path shows whose it is."""
    (lake.tree / "mine").mkdir(parents=True)
    (tmp_path / "alias").symlink_to(lake.tree / "mine", target_is_directory=True)
    inner, outer = inner_of(lake, "alias"), {"datasets": [{"urn": "albums"}]}
    run(job(inner if first == "inner" else outer))

    refuse(
        job(outer if first == "inner" else inner),
        f"to which the job '{'inner' if first == 'inner' else 'crash'}' copies",
    )

    run(job(inner if first == "inner" else outer))


@pytest.mark.parametrize(
    "spelled", ["{d}/lake/", "{d}//lake/.", "file://{d}/lake", "file:{d}/lake/mine", "{d}/./lake/mine/"]
)
def test_a_destination_in_other_words(lake: CopyLake, job: Open, spelled: str) -> None:
    run(job({"datasets": [{"urn": "albums"}]}))

    refuse(job({"job": "second", "destination": spelled.format(d=lake.directory)}), "to which the job 'crash' copies")


@pytest.mark.parametrize(("at", "name"), [("lake", "second"), ("lake/mine", "crash"), ("lake/albums", "crash")])
def test_a_job_of_another_log(
    lake: CopyLake, job: Open, server: EmbeddedServer, database_pool: DatabasePool, at: str, name: str
) -> None:
    run(job({"datasets": [{"urn": "albums"}]}))
    with migrated_database(server, database_pool) as database:
        elsewhere = replace(lake, database_url=server.url(database))
        with opening(elsewhere) as open_world:
            inside = {"job": name, "destination": f"{lake.directory}/{at}", "datasets": [{"urn": "albums"}]}
            refuse(open_world(inside), "to which the job 'crash' copies")


def test_the_same_job_of_another_log_is_blocked(
    lake: CopyLake, job: Open, server: EmbeddedServer, database_pool: DatabasePool
) -> None:
    """Its claim is the same; the dataset's marker shows that another log has published there."""
    run(job({"datasets": [{"urn": "albums"}]}))
    lake.change_source()
    originals = files_of(lake.tree)
    with (
        migrated_database(server, database_pool) as database,
        opening(replace(lake, database_url=server.url(database))) as open_world,
    ):
        (failed,) = open_world({"datasets": [{"urn": "albums"}]}).run().failed
    assert failed.error_family is ErrorFamily.CONFLICT
    assert files_of(lake.tree) == originals


@pytest.mark.core
def test_of_two_first_runs_at_once_the_one_that_claimed_goes_on(lake: CopyLake, job: Open) -> None:
    began: list[Failpoint] = []

    def run_inner(point: Failpoint) -> None:
        if point is Failpoint.DESTINATION_BOUND and not began:
            began.append(point)
            run(job(inner_of(lake)))

    outer = job({"datasets": [{"urn": "albums"}]})
    with install(run_inner), pytest.raises(RejectedError, match="the job 'inner' copies"):
        outer.run()

    lake.write("logs/app/today.log", 2)
    run(job(inner_of(lake)))
    assert not Path(claim_path(lake.root)).exists()


def test_a_lost_work_directory_says_the_way_out_which_works(lake: CopyLake, job: Open) -> None:
    run(job())
    shutil.rmtree(lake.tree / WORK_NAME)

    report = job().run()

    assert len(report.failed) == len(report.datasets)
    for each in report.failed:
        assert "put it back from a backup" in str(each.error)
        assert "give the job a new name" in str(each.error)
        assert "destination move" not in str(each.error)
    run(job({"job": "renamed"}))
    assert {*files_of(lake.tree)} == {*files_of(lake.source)} - {NAME}


def test_a_copy_with_another_destination_is_not_told_to_move_it(lake: CopyLake, job: Open) -> None:
    run(job())
    with pytest.raises(RejectedError, match="with a new name and the new destination") as refused:
        job({"destination": f"{lake.directory}/elsewhere"}).run()
    assert "destination move" not in str(refused.value)


def test_a_snapshot_of_the_tree_in_itself_can_be_excluded_once_the_tree_is_claimed(
    lake: CopyLake, job: Open, tmp_path: Path
) -> None:
    run(job({"datasets": []}))
    shutil.copytree(lake.tree, tmp_path / "h1")
    shutil.move(tmp_path / "h1", lake.tree / ".snapshot/h1")
    originals = files_of(lake.tree)

    said = refuse(job({"datasets": []}, deletes="all"), "another copy's destination lies inside")

    assert "Exclude that directory" in said
    lake.change_source()
    run(job({"datasets": []}, deletes="all", exclude=["/.snapshot/**"]))
    kept = {name: found for name, found in files_of(lake.tree).items() if name.startswith(".snapshot/")}
    assert kept == {name: found for name, found in originals.items() if name.startswith(".snapshot/")}


def test_filters_do_not_help_a_first_run(lake: CopyLake, job: Open) -> None:
    run(job(inner_of(lake)))
    assert "Filters do not help" in refuse(job({"datasets": []}, exclude=["/mine/**"]))
