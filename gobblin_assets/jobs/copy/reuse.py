"""What failed attempts at a file set finished: read from their journals, after their directories were captured."""

from collections.abc import Callable, Iterator, Sequence

from gobblin_assets.errors import GobblinError
from gobblin_assets.fs.named_files import NamedFiles
from gobblin_assets.fs.posix_errors import families
from gobblin_assets.jobs.copy.transfer.journal import JOURNAL_NAME, FinishedFile, read_lines
from gobblin_assets.jobs.copy.transfer.spark_orders import ORDERS
from gobblin_assets.model.files import FileIdentity


def find_finished(files: NamedFiles, directories: Sequence[str], say: Callable[[str], None]) -> dict[str, FinishedFile]:
    """By work guid. ``directories``: the newest first; a newer attempt took what it could from those before it.

    A directory that can't be read, or whose writes were lost, gives nothing.
    """
    found: dict[str, FinishedFile] = {}
    for directory in reversed(directories):
        try:
            found.update(_read_attempt(files, directory))
        except GobblinError as error:
            say(f"what an earlier attempt wrote is copied again: {error}")
    return found


def _read_attempt(files: NamedFiles, directory: str) -> Iterator[tuple[str, FinishedFile]]:
    standing = {each.path: each.identity for each in files.list_files(directory)}
    # A writer that died had synced nothing. After this, whoever reads a file from the disk reads what stays there.
    with files.durable_tree(directory, file_count=len(standing)):
        pass
    for journal in standing:
        writer, _, name = journal.rpartition("/")
        # Tries of Spark's tasks that the driver had not taken yet are writers too.
        if name != JOURNAL_NAME or writer.rpartition("/")[0] not in {directory, f"{directory}/{ORDERS}"}:
            continue
        with families("read", journal), files.open_input(journal) as stream:
            content = stream.read()
        for guid, line in read_lines(content):
            path = f"{writer}/{line.path}"
            if standing.get(path) == FileIdentity(line.size_bytes, line.inode, line.mtime_ns):
                yield guid, line._replace(path=path)
