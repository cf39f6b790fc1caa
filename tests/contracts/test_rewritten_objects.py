"""Objects that another tool rewrote after a step published them, and whose metadata it kept: not the step's."""

from collections.abc import Callable

import google_crc32c
import pytest

from gobblin_assets.commit.steps import StepVerdict, UndoOutcome
from gobblin_assets.destinations.files.upload_step import UploadStep
from gobblin_assets.fs.objects import HasEtag, WriteOutcome
from tests.contracts import test_object_steps
from tests.contracts.test_object_steps import NEW, Place

place = test_object_steps.place

LONGER = NEW + b", and more"
SAME_LENGTH = NEW[::-1]

each_kind = pytest.mark.parametrize("make", [Place.place_object, Place.replace_object, Place.publish_object])
each_content = pytest.mark.parametrize("content", [LONGER, SAME_LENGTH], ids=["longer", "of the same length"])


def rewrite(place: Place, content: bytes) -> None:
    """As a tool that adds to an object, or packs it anew."""
    found = place.get()
    upload = place.files.begin_upload(place.target, found.metadata or {}, found.headers)
    part = place.files.write_part(place.target, upload, 1, content, google_crc32c.value(content))
    done = place.files.complete_upload(place.target, upload, [part], HasEtag(found.etag))
    assert done is WriteOutcome.WRITTEN


@each_kind
@each_content
def test_a_rewritten_object_is_another_s(place: Place, make: Callable[[Place], UploadStep], content: bytes) -> None:
    step = make(place)
    place.execute(step)
    assert place.verify(step) is StepVerdict.DONE

    rewrite(place, content)

    assert place.verify(step) is StepVerdict.CONFLICT
    assert "something else put it there" in step.find_fault(place.world(), StepVerdict.CONFLICT).found


@each_kind
@each_content
def test_an_abandonment_leaves_a_rewritten_object(
    place: Place, make: Callable[[Place], UploadStep], content: bytes
) -> None:
    step = make(place)
    place.execute(step)
    rewrite(place, content)

    assert place.undo(step) is UndoOutcome.NEVER_HAPPENED

    assert place.read() == content
