"""What a writer needs of an order, in tuples of numbers and texts: the driver's half of ``writing.unpack_work``."""

from gobblin_assets.jobs.copy.copyable import Attributes, CopyableFile, CopyItem
from gobblin_assets.jobs.copy.transfer.bins import Bin
from gobblin_assets.jobs.copy.transfer.port import TransferOrder
from gobblin_assets.jobs.copy.transfer.preserve import PreserveLetter
from gobblin_assets.jobs.copy.transfer.writing import PackedWork


def pack_work(order: TransferOrder, found: Bin) -> PackedWork:
    """The work of the bin's writer; ``marshal`` takes it."""
    kept = order.preserve.letters
    return (
        order.source_root,
        f"{order.attempt}/{found.writer}",
        (order.checksum, PreserveLetter.ACCESS_LISTS in kept, PreserveLetter.EXTENDED in kept),
        tuple(_pack_item(item) for item in found.items),
    )


def _pack_item(item: CopyItem) -> PackedWork:
    cut = len(item.path) + 1 if item.is_directory and item.path else 0
    return (
        item.number,
        item.is_directory,
        tuple([_pack_file(file, file.path[cut:] if item.is_directory else "") for file in item.files]),
        tuple([(place, _pack_attributes(desired)) for place, desired in item.directories]),
        _pack_attributes(item.desired),
    )


def _pack_file(file: CopyableFile, place: str) -> PackedWork:
    origin = file.origin
    planned = origin.identity
    return place, origin.path, planned.size_bytes, planned.inode, planned.mtime_ns, _pack_attributes(file.desired)


def _pack_attributes(desired: Attributes) -> PackedWork:
    return desired.mode, desired.owner, desired.group, desired.mtime_ns, desired.xattrs
