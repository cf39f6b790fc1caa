"""A NameNode's order of names, and the one of listings."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.hdfs.hdfs_settings import HdfsSettings
from gobblin_assets.fs.hdfs.tree import in_byte_order, list_pages
from gobblin_assets.fs.hdfs.web import WebHdfs
from gobblin_assets.fs.tree import EntryKind, TreeEntry, sort_key
from gobblin_assets.model.files import FileIdentity
from tests.support.answering import answering

NAMES = st.text(st.sampled_from("a!/.0bé\uffff\U0001f40d".replace("/", "")), min_size=1, max_size=4)
KINDS = st.sampled_from([EntryKind.FILE, EntryKind.DIRECTORY])


def signed(name: str) -> list[int]:
    return [byte - 256 if byte > 127 else byte for byte in name.encode()]


def entries(prefix: str, found: dict[str, EntryKind]) -> Iterator[TreeEntry]:
    """As a NameNode lists them."""
    for name in sorted(found, key=signed):
        yield TreeEntry(prefix + name, found[name], FileIdentity(0, 1, 0))


@given(st.dictionaries(NAMES, KINDS, max_size=12), st.sampled_from(["", "b/", "é/"]))
def test_the_order_of_a_name_node_becomes_that_of_bytes(found: dict[str, EntryKind], prefix: str) -> None:
    given_entries = list(entries(prefix, found))
    ordered = list(in_byte_order(prefix, given_entries))
    assert ordered == sorted(given_entries, key=lambda entry: sort_key(entry).encode())


def test_names_of_ascii_are_given_as_they_come() -> None:
    found = {f"{number:04d}": EntryKind.DIRECTORY if number % 2 else EntryKind.FILE for number in range(2_000)}
    taken = 0

    def take() -> Iterator[TreeEntry]:
        nonlocal taken
        for entry in entries("é/", found):
            taken += 1
            yield entry

    for given_count, _entry in enumerate(in_byte_order("é/", take()), start=1):
        assert taken <= given_count + 1


def test_another_order_than_a_name_nodes_is_refused() -> None:
    """Such a server leaves names out between two pages, or gives one page for ever."""
    names = [{"pathSuffix": name} for name in ("a", "é")]
    page = {"partialListing": {"FileStatuses": {"FileStatus": names}}, "remainingEntries": 5}
    with answering({"DirectoryListing": page}) as url, pytest.raises(RejectedError, match="order") as refused:
        list(list_pages(WebHdfs("host", HdfsSettings("me", web_url=url), "source"), "/a"))
    assert refused.value.field == "source"
