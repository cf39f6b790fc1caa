"""Objects that are removed by what is known of them, moved aside, or looked at without executing anything."""

import pytest

from gobblin_assets.commit.step_calls import verify_steps
from gobblin_assets.commit.step_world import StepPorts, StepWorld
from gobblin_assets.commit.steps import StepVerdict
from gobblin_assets.commit.withdrawal import abort_attempt_uploads, withdraw_name
from gobblin_assets.errors import ConflictError
from gobblin_assets.fs.object_work import ObjectWorkFiles
from gobblin_assets.model.files import FileIdentity
from tests.contracts import test_object_steps
from tests.contracts.test_object_steps import OLD, Place

place = test_object_steps.place


def test_a_file_is_removed_by_its_identity_also_where_no_etag_was_known(place: Place) -> None:
    files = ObjectWorkFiles(place.files)
    place.put(OLD)
    for other in (FileIdentity(len(OLD) + 1), FileIdentity(len(OLD), tag="0" * 32)):
        with pytest.raises(ConflictError, match="another object now"):
            files.remove_file(place.target, other)
    assert place.read() == OLD
    for _again in range(2):
        assert files.remove_file(place.target, FileIdentity(len(OLD)))
    assert place.read() is None


def test_names_are_moved_aside_whole_and_only_as_they_were_found(place: Place) -> None:
    files, aside = ObjectWorkFiles(place.files), f"{place.bucket}/aside"
    step = place.publish_object()
    place.execute(step)
    assert withdraw_name(files, place.target, f"{aside}/one")
    assert withdraw_name(files, place.staging, f"{aside}/attempt")
    assert not withdraw_name(files, place.staging, f"{aside}/again")
    moved = {each.path.removeprefix(f"{aside}/") for each in place.files.list_objects(aside)}
    assert moved == {"one", "attempt/uploads-file-4.json"}
    assert [each.path for each in place.files.list_objects(f"{place.bucket}/tree")] == []


def test_a_disarmed_attempt_publishes_nothing_more_and_keeps_what_it_wrote_down(place: Place) -> None:
    step = place.publish_object()
    abort_attempt_uploads(ObjectWorkFiles(place.files), place.staging)
    place.execute(step)
    assert place.read() is None
    assert len(list(place.files.list_objects(place.staging))) == 1


def test_who_only_looks_finds_an_upload_lost_that_is_gone(place: Place) -> None:
    step = place.publish_object()
    with StepPorts(suspects_uploads=True) as ports:
        look = StepWorld(ObjectWorkFiles(place.files), ports)
        assert verify_steps([step], look) == [StepVerdict.DO]
        place.files.abort_upload(step.target, step.upload)
        assert verify_steps([step], look) == [StepVerdict.LOST]
