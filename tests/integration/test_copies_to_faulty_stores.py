"""A copy to a bucket, with one fault of the store at one kind of its requests: a new, a replaced and a removed file."""

from collections.abc import Callable, Mapping
from itertools import product

import pytest

from gobblin_assets.commit import execution
from tests.integration import test_copy_to_store
from tests.integration.test_copy_to_store import Lake
from tests.support.command_lake import ask, invoke
from tests.support.faulty_store import Message, StoreFault, faulty_store
from tests.support.s3_servers import S3Server
from tests.support.shares import rare

lake = test_copy_to_store.lake

STRANGER = "a/stranger"
IsAsked = Callable[[Message], bool]


def at(method: str, name: str, query: str) -> IsAsked:
    """Requests of this method to the object of this name. ``query``: how it begins."""

    def is_asked(request: Message) -> bool:
        path, _, found = request.target.partition("?")
        return request.method == method and path.endswith(f"/mirror/a/{name}") and found.startswith(query)

    return is_asked


CONDITIONAL: Mapping[str, IsAsked] = {
    "complete a new object": at("POST", "new", "uploadId="),
    "complete a replacement": at("POST", "replaced", "uploadId="),
    "copy aside": lambda request: request.method == "PUT" and "/slots/" in request.target,
    "put a mark": at("POST", "removed", "uploadId="),
    "remove the mark": lambda request: at("DELETE", "removed", "")(request) and "uploadId" not in request.target,
}
REQUESTS: Mapping[str, IsAsked] = {
    "begin": at("POST", "new", "uploads"),
    "write a part": at("PUT", "replaced", "partNumber="),
    **CONDITIONAL,
    "look": at("HEAD", "replaced", ""),
}
CASES = [
    ("complete a replacement", StoreFault.LOST),
    *(
        rare(name, fault)
        for name, fault in (
            *product(REQUESTS, (StoreFault.BUSY, StoreFault.LOST)),
            *product(CONDITIONAL, (StoreFault.UNMET, StoreFault.OVERLAPPED)),
            ("write a part", StoreFault.SPOILED),
        )
        if (name, fault) != ("complete a replacement", StoreFault.LOST)
    ),
]


@pytest.mark.parametrize(("name", "fault"), CASES)
def test_a_fault_of_the_store_loses_nothing_and_leaves_nothing(
    lake: Lake, versitygw: S3Server, monkeypatch: pytest.MonkeyPatch, name: str, fault: StoreFault
) -> None:
    """One run is enough: what a request did is looked at before anything is done again."""
    monkeypatch.setattr(execution, "NO_ANSWER_WAITS_S", (0.0,) * len(execution.NO_ANSWER_WAITS_S))
    lake.write("a/replaced", b"old")
    lake.write("a/removed", b"old")
    assert invoke("run", lake.job).exit_code == 0
    lake.files.put_if_absent(f"{lake.root}/{STRANGER}", b"a stranger's")
    lake.write("a/replaced", b"other")
    lake.write("a/new", b"new")
    (lake.source / "a/removed").unlink()
    with faulty_store(versitygw.address) as proxy, monkeypatch.context() as patch:
        patch.setenv("GOBBLIN_S3_ENDPOINT_URL", proxy.endpoint_url)
        left = [fault]
        proxy.choose = lambda request: left.pop() if left and REQUESTS[name](request) else None
        ran = invoke("run", lake.job)
        assert not left, "the fault met no request"
        assert ran.exit_code == 0, ran.output

    assert lake.copied() == {**lake.written(), STRANGER: b"a stranger's"}
    assert ask("commit", "list") == []
    begun = [each.path for each in lake.files.list_uploads(lake.root)]
    # Nobody learns of an upload whose beginning was not answered. It has no part.
    assert begun == ([f"{lake.root}/a/new"] if (name, fault) == ("begin", StoreFault.LOST) else [])
    found = invoke("verify", lake.job)
    assert found.exit_code == 0, found.output
