"""A file of rows that is being written: rows are held as Arrow has them, and encoded in large pieces."""

from contextlib import ExitStack
from typing import BinaryIO, Final, cast

import pyarrow as pa

from gobblin_assets.fs.posix_errors import families
from gobblin_assets.model.files import FileFormat
from gobblin_assets.rows.new_files import FinishedRows, NewFile
from gobblin_assets.rows.row_encoders import CountedStream, open_encoder

# A batch of one row takes far more memory than its values do: so many small ones are made one.
_SMALL_BATCHES_MAX: Final = 64
_SMALL_BYTES: Final = 64 << 10
# What Arrow and Python take for one column of a batch, beside its values.
_COLUMN_BYTES: Final = 512


class OpenFile:
    """Errors of the disk are families of the destination's, and never blamed on the source of the rows."""

    def __init__(self, file: NewFile, schema: pa.Schema, file_format: FileFormat, compression: str) -> None:
        self.row_count = 0
        self.held_bytes = 0
        self._file = file
        self._overhead_bytes = _COLUMN_BYTES * len(schema)
        self._held: list[pa.RecordBatch] = []
        self._small: list[pa.RecordBatch] = []
        self._stream = CountedStream(file.stream)
        with families("write", file.path), ExitStack() as stack:
            stack.callback(file.discard)
            # RawIOBase has all that BinaryIO asks for, and is no subclass.
            self._encoder = open_encoder(file_format, cast("BinaryIO", self._stream), schema, compression)
            stack.pop_all()

    @property
    def size_bytes(self) -> int:
        """The bytes of the file so far: those that are encoded, and those that are held as Arrow has them."""
        return self._stream.size_bytes + self.held_bytes

    @property
    def kept_bytes(self) -> int:
        """Memory beside ``held_bytes`` that is free only once the file is finished."""
        return self._encoder.kept_bytes

    def add(self, batch: pa.RecordBatch) -> None:
        """Hold the rows. They must have the file's columns."""
        owned = _without_unseen(batch)
        self.row_count += owned.num_rows
        self.held_bytes += owned.nbytes + self._overhead_bytes
        self._small.append(owned)
        if owned.nbytes >= _SMALL_BYTES:
            self._held += self._small
            self._small = []
        elif len(self._small) == _SMALL_BATCHES_MAX:
            self.held_bytes -= (_SMALL_BATCHES_MAX - 1) * self._overhead_bytes
            self._held.append(pa.concat_batches(self._small))
            self._small = []

    def flush(self) -> None:
        """Encode what is held."""
        held = [*self._held, *self._small]
        self._held, self._small, self.held_bytes = [], [], 0
        if held:
            with families("write", self._file.path):
                self._encoder.write(pa.Table.from_batches(held))

    def finish(self) -> FinishedRows:
        self.flush()
        with families("write", self._file.path):
            row_count = self._encoder.finish()
            return self._file.finish(row_count, self._stream.size_bytes)

    def discard(self) -> None:
        """Give the file up, and raise nothing."""
        self._held, self._small, self.held_bytes = [], [], 0
        self._stream.detach()
        self._file.discard()


def _without_unseen(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch; or a copy, if it is a small part of rows that it would keep in memory."""
    if batch.get_total_buffer_size() <= 2 * batch.nbytes + _SMALL_BYTES:
        return batch
    return pa.ipc.read_record_batch(batch.serialize(), batch.schema)
