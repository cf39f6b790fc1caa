"""What a fold at given names is made of: the newest change of each name, cut into segments of their owners."""

import uuid
from collections.abc import Sequence

import pytest

from gobblin_assets.commit.name_changes import has_given_names, list_changes
from gobblin_assets.commit.named_folding import NamedPart, fold_names
from gobblin_assets.commit.segment import STEPS_PER_SEGMENT_MAX, encode_segments, find_kinds, list_published
from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.destinations.fixed_names.named_steps import PlaceFile
from gobblin_assets.destinations.fixed_names.object_steps import PlaceObject, RemoveObject, ReplaceObject
from gobblin_assets.fs.objects import UploadId
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.urn import Role

ATTEMPT = "/bucket/.gobblin/attempt"
NEW, OLD = FileIdentity(3, tag="new"), FileIdentity(2, tag="old")


def make_parts(steps: Sequence[CommitStep], *, partition: str = "", owner: SequenceId | None = None) -> list[NamedPart]:
    publisher = SequenceId(uuid.uuid4())
    segments = encode_segments(steps, role=Role.DATA, partition=partition)
    return [NamedPart(publisher, owner or publisher, partition, each.payload, each.digest) for each in segments]


@pytest.mark.parametrize("keeps_removed", [False, True])
def test_objects_are_folded_like_files(keeps_removed: bool) -> None:
    def place(name: str) -> tuple[str, str, str, UploadId, tuple[()]]:
        return ATTEMPT, f"/bucket/{name}", name, UploadId("upload"), ()

    parts = make_parts(
        [
            PlaceObject(*place("a"), identity=NEW),
            ReplaceObject(*place("b"), identity=NEW, old=OLD),
            RemoveObject(*place("c"), old=OLD),
        ]
    )
    older = make_parts([PlaceObject(*place(name), identity=OLD) for name in "bcd"])
    ((_id, _owner, folded),) = [
        each
        for each in fold_names([*parts, *older], version=2, keeps_removed=keeps_removed)
        if each[1] == parts[0].owner
    ]
    assert has_given_names(folded.payload, folded.digest)
    found = list(list_changes(folded.payload, folded.digest))
    by = str(parts[0].sequence_id)
    removed = [("/bucket/c", None, by)] if keeps_removed else []
    assert found == [("/bucket/a", NEW, by), ("/bucket/b", NEW, by), *removed]
    assert list(list_published(folded.payload, folded.digest)) == [("/bucket/a", NEW, 0), ("/bucket/b", NEW, 0)]
    kinds = [kind.name for kind in find_kinds(folded.payload, folded.digest)]
    assert kinds == ["place_object", "remove_object"][: 1 + keeps_removed]
    assert (folded.step_count, folded.file_count, folded.file_bytes) == (2 + keeps_removed, 2, 6)


@pytest.mark.parametrize("rows_at_once", [100_000, 1_000])
def test_segments_are_cut_by_owner_and_by_size_and_are_the_same_each_time(rows_at_once: int) -> None:
    count = STEPS_PER_SEGMENT_MAX + 2_000
    steps = [PlaceFile(ATTEMPT, f"/out/{n:06}", str(n), "w0", FileIdentity(n)) for n in range(count)]
    parts = [*make_parts(steps[:500], partition="a"), *make_parts(steps, partition="b")]
    made = list(fold_names(parts, version=9, keeps_removed=False, rows_at_once=rows_at_once))
    assert made == list(fold_names(parts, version=9, keeps_removed=False, rows_at_once=rows_at_once))
    of_owner = {part.owner: part.partition for part in parts}
    seen: dict[str, list[str]] = {"a": [], "b": []}
    for _id, owner, segment in made:
        assert segment.partition == of_owner[owner]
        assert segment.step_count <= STEPS_PER_SEGMENT_MAX
        assert segment.version == 9
        seen[segment.partition] += [path for path, _identity, _by in list_changes(segment.payload, segment.digest)]
    assert seen["a"] == [step.target for step in steps[:500]]
    assert seen["b"] == [step.target for step in steps[500:]]
    assert len({segment_id for segment_id, _owner, _segment in made}) == len(made)
