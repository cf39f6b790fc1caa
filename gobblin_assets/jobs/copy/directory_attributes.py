"""Access lists and extended attributes of the source's directories, which are read while they are planned."""

import os
from collections.abc import Callable
from functools import partial

from gobblin_assets.jobs.copy.transfer.attributes import ExtendedAttributes, read_extended
from gobblin_assets.jobs.copy.transfer.file_copy import CopyOptions, source_error
from gobblin_assets.jobs.copy.transfer.preserve import Preserve, PreserveLetter

ReadDirectory = Callable[[str], ExtendedAttributes]
"""Of a directory, by its path below the source's root, or by its full path."""


def read_nothing(_path: str) -> ExtendedAttributes:
    """Where directories have no such attributes, or nobody wants them."""
    return ()


def directory_reader(source_root: str, preserve: Preserve, *, follows_links: bool) -> ReadDirectory:
    """Reads what is to be kept of directories of a local or mounted file system."""
    access_lists = PreserveLetter.ACCESS_LISTS in preserve.letters
    extended = PreserveLetter.EXTENDED in preserve.letters
    if not access_lists and not extended:
        return read_nothing
    options = CopyOptions(checksum=False, access_lists=access_lists, extended=extended, follows_links=follows_links)
    return partial(_read, source_root, options)


def _read(source_root: str, options: CopyOptions, path: str) -> ExtendedAttributes:
    """RetryableError if the directory is gone, or is something else now; RejectedError if a right is missing."""
    place = path if path.startswith("/") else f"{source_root}/{path}"
    try:
        # The way to a file set may be a link, as the root of its listing may be one.
        flags = options.read_flags & ~os.O_NOFOLLOW if path.startswith("/") else options.read_flags
        descriptor = os.open(place, flags | os.O_DIRECTORY)
        try:
            return read_extended(descriptor, access_lists=options.access_lists, extended=options.extended)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise source_error(error, place) from error
