"""The destination's tree as plans list it."""

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.copy.targets import TargetTree
from tests.support.tree_entries import ListedTree, listing


@pytest.mark.parametrize("place", ["", "/mirror"])
def test_the_jobs_own_work_directory_is_no_place_to_publish(place: str) -> None:
    """Its identity file is the job's own: no error may ask for its removal."""
    tree = TargetTree(ListedTree(listing(".gobblin-destination.json")), "/lake", lambda _root, _entry: False)

    with pytest.raises(RejectedError, match="the job's own work directory") as refused:
        list(tree.list_tree(f"/lake/.gobblin{place}"))

    assert refused.value.field == "destination"
    assert "remove" not in refused.value.hint
