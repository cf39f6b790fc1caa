import pytest

from gobblin_assets.commit.destination import Binding, Verdict, decide, find_nested
from gobblin_assets.errors import RejectedError
from gobblin_assets.model.path_names import moved_path
from gobblin_assets.model.urn import JobName
from gobblin_assets.spec.job_files import require_distinct_jobs
from gobblin_assets.spec.job_parsing import parse_job

JOB = JobName("shop")


def _bound(identity: str | None, *, published: bool) -> Binding:
    return Binding(JOB, "file:///lake", identity, published)


@pytest.mark.parametrize(
    ("binding", "is_bound_root", "identity", "is_visible", "expected"),
    [
        (None, False, None, False, Verdict.BIND),
        (None, False, "x", False, Verdict.BIND),
        (_bound("x", published=True), True, "x", False, Verdict.READY),
        (_bound("x", published=False), True, "x", False, Verdict.READY),
        (_bound("x", published=True), False, "x", True, Verdict.ELSEWHERE),
        (_bound("x", published=False), False, None, True, Verdict.ELSEWHERE),
        (_bound("x", published=True), True, None, True, Verdict.AWAY),
        (_bound("x", published=True), True, "y", True, Verdict.AWAY),
        (_bound("x", published=False), True, None, False, Verdict.IDENTIFY),
        (_bound("x", published=False), True, "y", False, Verdict.IDENTIFY),
        (_bound(None, published=True), True, None, True, Verdict.IDENTIFY),
        (_bound(None, published=True), True, "y", True, Verdict.IDENTIFY),
        (_bound(None, published=True), True, None, False, Verdict.AWAY),
        (_bound(None, published=True), True, "y", False, Verdict.AWAY),
        (_bound(None, published=True), False, None, True, Verdict.ELSEWHERE),
        (_bound(None, published=False), True, None, False, Verdict.IDENTIFY),
    ],
)
def test_what_a_run_does_about_its_destination(
    binding: Binding | None, is_bound_root: bool, identity: str | None, is_visible: bool, expected: Verdict
) -> None:
    found = decide(binding, is_bound_root=is_bound_root, identity=identity, is_visible=lambda: is_visible)

    assert found is expected


@pytest.mark.parametrize(
    ("root", "other_root", "is_nested"),
    [
        ("/lake", "/lake", False),
        ("/lake/shop", "/lake/web", False),
        ("/lake/web", "/lake", True),
        ("/lake/web/data", "/lake", True),
        ("/lake/web2", "/lake", False),
        ("/lake", "/lake/shop", True),
        ("/lake", "/lake/shop/x", True),
        ("/lake", "/lake/shop2", False),
        ("/", "/shop", True),
    ],
)
def test_a_destination_may_share_a_root_and_not_lie_in_anothers_data(
    root: str, other_root: str, is_nested: bool
) -> None:
    plain = root.rstrip("/")
    others = {JobName("web"): (f"{other_root}/web", other_root)}

    found = find_nested(f"{plain}/shop", plain, others)

    assert found == ("web" if is_nested else None)


def test_a_path_moves_with_its_root() -> None:
    assert moved_path("/lake/shop/f", None) == "/lake/shop/f"
    assert moved_path("/lake/shop/f", ("/lake", "/mnt/new")) == "/mnt/new/shop/f"
    assert moved_path("/lake2/shop/f", ("/lake", "/mnt/new")) == "/lake2/shop/f"


def test_two_jobs_of_one_name_are_refused() -> None:
    jobs = [
        parse_job({"job": name, "source": {"connection": "c"}, "destination": place, "datasets": [{"urn": "a"}]})
        for name, place in (("shop", "/a"), ("web", "/a"), ("shop", "/b"))
    ]
    with pytest.raises(RejectedError, match="two jobs are called 'shop': /a and /b"):
        require_distinct_jobs(jobs)
    require_distinct_jobs(jobs[:2])
