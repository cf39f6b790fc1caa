"""The change log of one table as a sink's log, and the reader of the slot that all tables of the job share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gobblin_assets.errors import CorruptionError
from gobblin_assets.model.state import DatasetState
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.rows.joined_columns import parse_joined
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.names import TableName, parse_table_name
from gobblin_assets.sources.jdbc.postgres import postgres_families
from gobblin_assets.sources.log_port import CopyPlace, LogStart, RowDecoder, StreamLook, VnodeStart
from gobblin_assets.sources.postgres_log.log_starts import (
    PLACE_MIN,
    TO_COPY,
    LogPlace,
    TableStart,
    decide_copy,
    decide_start,
    find_copied_key,
    find_last_copy,
    find_progress,
    name_messages,
    require_slot_is_ours,
    vnode_of,
)
from gobblin_assets.sources.postgres_log.pgoutput import write_lsn
from gobblin_assets.sources.postgres_log.postgres_log_kind import PostgresLogSourceSpec, message_of
from gobblin_assets.sources.postgres_log.server_state import (
    LogServerState,
    PublicationState,
    PublishedTable,
    SlotState,
    find_publication,
    find_slot,
    look_at_server,
    open_log_session,
    require_server,
    require_table,
    require_unhidden,
)
from gobblin_assets.sources.postgres_log.slot_reader import SlotReader
from gobblin_assets.sources.postgres_log.table_copy import require_copyable
from gobblin_assets.sources.postgres_log.table_decoder import MessageDecoder, TableDecoder
from gobblin_assets.sources.postgres_log.walsender import drop_slot, end_other_reader
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec


@dataclass(frozen=True, slots=True)
class _Said:
    """The server's present answer for all tables of the slot."""

    server: LogServerState
    slot: SlotState | None
    publication: PublicationState | None


class SlotEpochs:
    """``EpochSource`` and ``CopiedLog`` of one table, or of the messages of one prefix."""

    def __init__(
        self,
        connection: JdbcConnection,
        source: PostgresLogSourceSpec,
        job: JobSpec,
        urn: DatasetUrn,
        dataset: DatasetSpec,
    ) -> None:
        self._connection = connection
        self._source = source
        self._job = job
        self._urn = urn
        self._dataset = dataset
        self._prefix = message_of(dataset)
        self._decoder: TableDecoder | MessageDecoder = MessageDecoder()
        if self._prefix is None:
            self._decoder = TableDecoder(urn, dataset.casts, None)

    @property
    def stream(self) -> str:
        return f"{self._source.connection}/{self._source.slot_of(self._job.job)}"

    @property
    def decoder(self) -> RowDecoder:
        return self._decoder

    def find_start(self, state: DatasetState) -> LogStart:
        return self.find_start_in(self.ask_server(), state)

    def find_start_in(self, said: Any, state: DatasetState) -> LogStart:
        source, urn = self._source, self._urn
        (table, place), name = self._find_in(said, state), self._find_name()
        decision = decide_start(urn, name, table, state, said.server, said.slot, place)
        is_copied_first = (source.first_copy or decision.partial is not None) and table is not None
        if state.published_columns is not None and isinstance(self._decoder, TableDecoder):
            self._decoder.learn(state.published_columns)
        vnode = vnode_of(name, decision.copy)
        position = TO_COPY if decision.watermark is None else decision.watermark
        notes = []
        if position < PLACE_MIN:
            if table is not None:
                # Here, one table is refused; in the midst of the stream it would stop the others as well.
                require_copyable(self._connection, table, self._dataset.casts, urn)
                if is_copied_first:
                    require_unhidden(table, where=f"connections[{self._connection.name}]")
            notes.append(f"is copied first (copy {decision.copy})" if is_copied_first else "begins without a copy")
        if decision.partial is not None:
            notes.append(f"its copy goes on behind {find_progress(state)}")
        if decision.is_adopted:
            notes.append("which table it is, and how it is published, is kept from now on: of before, nothing is known")
        start = TableStart(
            urn=urn,
            vnode=vnode,
            table=table,
            prefix=self._prefix,
            casts=self._dataset.casts,
            decided=decision,
            position=position,
            place=place,
            is_copied_first=is_copied_first,
            range_rows=source.copy_rows,
            columns=None if position < PLACE_MIN or not state.source_columns else frozenset(state.source_columns),
            joined=() if position < PLACE_MIN else parse_joined(state.source_facts),
        )
        return LogStart(
            {vnode: VnodeStart(position, decision.watermark)}, facts=decision.facts, notes=tuple(notes), memory=start
        )

    def look_at_stream(self) -> StreamLook:
        name = self._source.slot_of(self._job.job)
        with open_log_session(self._connection) as session, postgres_families(self._connection):
            server = look_at_server(session)
            slot = find_slot(session, name)
        if slot is None:
            return StreamLook(name, server.end, None, is_read=False, confirmed=None, retained_bytes=None)
        return StreamLook(
            name,
            server.end,
            # Of a slot that is being made, nothing is said yet.
            slot.wal_status or "reserved",
            is_read=slot.active_pid is not None,
            confirmed=None if slot.confirmed is None else write_lsn(slot.confirmed),
            retained_bytes=slot.retained_bytes,
            safe_bytes=slot.safe_bytes,
        )

    def drop_stream(self) -> None:
        name = self._source.slot_of(self._job.job)
        with open_log_session(self._connection) as session, postgres_families(self._connection):
            slot = find_slot(session, name)
            if slot is not None:
                require_slot_is_ours(slot, name, self._job.job)
                end_other_reader(session, name, self._job.job)
                drop_slot(session, name)

    def find_place(self, state: DatasetState) -> CopyPlace | None:
        name = self._find_name()
        copy = find_last_copy(name, state)
        if copy is None:
            return None
        watermark = state.find_watermark(vnode_of(name, copy), "")
        position = None if watermark is None else watermark.value
        if not isinstance(position, int) or position == TO_COPY:
            return CopyPlace(copy, None, None)
        if position < PLACE_MIN:
            return CopyPlace(copy, None, None, find_progress(state))
        return CopyPlace(copy, position, self.write_place(position), key=find_copied_key(state))

    def write_place(self, position: int) -> str | None:
        return None if position < PLACE_MIN else write_lsn(position)

    def begin_copy(self, state: DatasetState) -> LogStart:
        said, name = self.ask_server(), self._find_name()
        _table, place = self._find_in(said, state)
        copy, is_begun = decide_copy(self._urn, name, state, said.slot, place)
        return LogStart({vnode_of(name, copy): VnodeStart(TO_COPY, TO_COPY if is_begun else None)})

    def ask_server(self) -> _Said:
        with open_log_session(self._connection) as session, postgres_families(self._connection):
            server = look_at_server(session)
            publication = find_publication(session, self._source.publication)
            slot = find_slot(session, self._source.slot_of(self._job.job))
        return _Said(server, slot, publication)

    def _find_in(self, said: _Said, state: DatasetState) -> tuple[PublishedTable | None, LogPlace]:
        """The table, None for messages, and the place. RejectedError for what can't be followed."""
        source, server = self._source, said.server
        where = f"connections[{self._connection.name}]"
        found = require_server(server, source.publication, said.publication, where=where)
        table = None
        if self._prefix is None:
            copied = self.find_place(state)
            is_followed = copied is not None and copied.position is not None
            table = require_table(self._urn, self._find_table(), source.publication, found, is_followed=is_followed)
        place = LogPlace(source.slot_of(self._job.job), source.publication, server.system_id, server.timeline or 0)
        return table, place

    def _find_table(self) -> TableName:
        name = parse_table_name(self._dataset.table or self._urn, field=f"datasets[{self._urn}].table")
        return TableName(name.schema or "public", name.table)

    def _find_name(self) -> str:
        """As vnodes have it."""
        return str(self._find_table()) if self._prefix is None else name_messages(self._prefix)

    def open_reader(self, starts: Sequence[LogStart], say: Callable[[str], None]) -> SlotReader:
        found = [start.memory for start in starts if isinstance(start.memory, TableStart)]
        if not found or len(found) != len(starts):
            raise CorruptionError(f"{self._urn}: where its log begins was not asked")
        return SlotReader(self._connection, found, job=self._job.job, every_s=self._job.sink.every_s, say=say)
