"""What an object says of itself besides its bytes, such as its type, comes back with it."""

from collections.abc import Callable, Mapping

import google_crc32c
import pytest

from gobblin_assets.commit.steps import UndoOutcome
from gobblin_assets.destinations.fixed_names.object_steps import ObjectStep
from gobblin_assets.fs.objects import Absent, ObjectEntry
from tests.contracts import test_object_steps
from tests.contracts.test_object_steps import OLD, Place

place = test_object_steps.place


def upload(place: Place, headers: Mapping[str, str]) -> ObjectEntry:
    """As somebody else does, at a free name."""
    begun = place.files.begin_upload(place.target, {"team": "a"}, headers)
    part = place.files.write_part(place.target, begun, 1, OLD, google_crc32c.value(OLD))
    place.files.complete_upload(place.target, begun, [part], Absent())
    return place.get()


@pytest.mark.parametrize("make", [Place.replace_object, Place.remove_object], ids=lambda make: make.__name__)
def test_a_version_that_comes_back_says_of_itself_what_it_said_before(
    place: Place, make: Callable[[Place, ObjectEntry], ObjectStep]
) -> None:
    headers = {
        "cache-control": "max-age=60, public",
        "content-disposition": 'attachment; filename="a  b.csv"',
        "content-encoding": "gzip",
        "content-language": "de",
        "content-type": "text/csv; charset=utf-8",
        "expires": "Thu, 01 Jan 2032 00:00:00 GMT",
    }
    step = make(place, upload(place, headers))
    place.execute(step)
    assert place.undo(step) is UndoOutcome.UNDONE
    back = place.get()
    assert place.read() == OLD
    assert back.headers == headers
    assert (back.metadata or {})["team"] == "a"
