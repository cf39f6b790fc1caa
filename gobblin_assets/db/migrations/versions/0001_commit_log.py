"""The commit log: datasets, leases, sequences, attempts, segments, the ledger, and the history of runs.

Revision ID: 0001
"""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_STATEMENTS = (
    "CREATE TYPE gobblin.wm_range AS RANGE (subtype = bytea)",
    """
    CREATE TABLE gobblin.dataset (
        dataset_id BIGINT GENERATED ALWAYS AS IDENTITY,
        job TEXT NOT NULL,
        urn TEXT NOT NULL,
        version BIGINT DEFAULT 0 NOT NULL,
        source_columns JSONB,
        published_columns JSONB,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        CONSTRAINT dataset_pkey PRIMARY KEY (dataset_id),
        CONSTRAINT dataset_job_urn_key UNIQUE (job, urn)
    )
    """,
    """
    CREATE TABLE gobblin.run (
        run_id UUID NOT NULL,
        job TEXT NOT NULL,
        state TEXT NOT NULL,
        owner TEXT NOT NULL,
        dagster_run_id TEXT,
        error TEXT,
        figures JSONB,
        started_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        ended_at TIMESTAMP WITH TIME ZONE,
        CONSTRAINT run_pkey PRIMARY KEY (run_id),
        CONSTRAINT run_state_check
            CHECK (state IN ('PENDING', 'RUNNING', 'COMMITTED', 'FAILED', 'CANCELLED'))
    )
    """,
    "CREATE INDEX run_job_started_at_idx ON gobblin.run (job, started_at)",
    """
    CREATE TABLE gobblin.commit_sequence (
        sequence_id UUID NOT NULL,
        dataset_id BIGINT NOT NULL,
        run_id UUID NOT NULL,
        partition TEXT NOT NULL,
        mode TEXT NOT NULL,
        replaces BOOLEAN NOT NULL,
        fence BIGINT NOT NULL,
        state TEXT NOT NULL,
        base_version BIGINT,
        result_version BIGINT,
        digest BYTEA,
        segment_count INTEGER,
        step_count BIGINT,
        file_count BIGINT,
        row_count BIGINT,
        file_bytes BIGINT,
        complete BOOLEAN,
        failed_tries INTEGER DEFAULT 0 NOT NULL,
        last_error TEXT,
        details JSONB,
        next_try_at TIMESTAMP WITH TIME ZONE,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        prepared_at TIMESTAMP WITH TIME ZONE,
        done_at TIMESTAMP WITH TIME ZONE,
        aborted_at TIMESTAMP WITH TIME ZONE,
        announced_at TIMESTAMP WITH TIME ZONE,
        CONSTRAINT commit_sequence_pkey PRIMARY KEY (sequence_id),
        CONSTRAINT commit_sequence_state_check
            CHECK (state IN ('BUILDING', 'PREPARED', 'DONE', 'BLOCKED', 'ABANDONING', 'ABORTED')),
        CONSTRAINT commit_sequence_mode_check CHECK (mode IN ('append', 'refresh')),
        CONSTRAINT commit_sequence_sealed_check
            CHECK (state IN ('BUILDING', 'ABORTED') OR (base_version IS NOT NULL AND digest IS NOT NULL)),
        CONSTRAINT commit_sequence_done_check CHECK ((state = 'DONE') = (result_version IS NOT NULL)),
        CONSTRAINT commit_sequence_dataset_id_result_version_key UNIQUE (dataset_id, result_version),
        CONSTRAINT commit_sequence_dataset_id_fkey FOREIGN KEY(dataset_id)
            REFERENCES gobblin.dataset (dataset_id),
        CONSTRAINT commit_sequence_run_id_fkey FOREIGN KEY(run_id) REFERENCES gobblin.run (run_id)
    )
    """,
    """
    CREATE UNIQUE INDEX commit_sequence_one_open ON gobblin.commit_sequence (dataset_id)
        WHERE state IN ('PREPARED', 'BLOCKED', 'ABANDONING')
    """,
    "CREATE INDEX commit_sequence_run_id_idx ON gobblin.commit_sequence (run_id)",
    """
    CREATE INDEX commit_sequence_unannounced ON gobblin.commit_sequence (sequence_id)
        WHERE state = 'DONE' AND announced_at IS NULL
    """,
    """
    CREATE INDEX commit_sequence_unfinished ON gobblin.commit_sequence (next_try_at, sequence_id)
        WHERE state IN ('BUILDING', 'PREPARED', 'BLOCKED', 'ABANDONING')
    """,
    """
    CREATE TABLE gobblin.lease (
        dataset_id BIGINT NOT NULL,
        fence BIGINT DEFAULT 0 NOT NULL,
        owner TEXT,
        run_id UUID,
        dagster_run_id TEXT,
        taken_at TIMESTAMP WITH TIME ZONE,
        expires_at TIMESTAMP WITH TIME ZONE,
        CONSTRAINT lease_pkey PRIMARY KEY (dataset_id),
        CONSTRAINT lease_dataset_id_fkey FOREIGN KEY(dataset_id) REFERENCES gobblin.dataset (dataset_id)
    )
    """,
    """
    CREATE TABLE gobblin.watermark_key (
        key_id BIGINT GENERATED ALWAYS AS IDENTITY,
        dataset_id BIGINT NOT NULL,
        name TEXT NOT NULL,
        partition TEXT NOT NULL,
        watermark JSONB,
        watermark_bytes BYTEA,
        sequence_id UUID,
        moved_at TIMESTAMP WITH TIME ZONE,
        CONSTRAINT watermark_key_pkey PRIMARY KEY (key_id),
        CONSTRAINT watermark_key_dataset_id_name_partition_key UNIQUE (dataset_id, name, partition),
        CONSTRAINT watermark_key_dataset_id_fkey FOREIGN KEY(dataset_id)
            REFERENCES gobblin.dataset (dataset_id)
    )
    """,
    """
    CREATE TABLE gobblin.attempt (
        attempt_id UUID NOT NULL,
        sequence_id UUID NOT NULL,
        dataset_id BIGINT NOT NULL,
        fence BIGINT NOT NULL,
        multi_work_unit INTEGER NOT NULL,
        try_number INTEGER NOT NULL,
        state TEXT NOT NULL,
        staging_path TEXT NOT NULL,
        spark_session_id TEXT,
        spark_user TEXT,
        spark_tag TEXT,
        row_count BIGINT,
        file_count BIGINT,
        file_bytes BIGINT,
        error TEXT,
        started_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        ended_at TIMESTAMP WITH TIME ZONE,
        cleanup_fences BIGINT[] DEFAULT '{}' NOT NULL,
        cleaned_at TIMESTAMP WITH TIME ZONE,
        CONSTRAINT attempt_pkey PRIMARY KEY (attempt_id),
        CONSTRAINT attempt_state_check CHECK (state IN ('RUNNING', 'STAGED', 'FAILED', 'CANCELLED')),
        CONSTRAINT attempt_sequence_id_fkey FOREIGN KEY(sequence_id)
            REFERENCES gobblin.commit_sequence (sequence_id),
        CONSTRAINT attempt_dataset_id_fkey FOREIGN KEY(dataset_id)
            REFERENCES gobblin.dataset (dataset_id),
        CONSTRAINT attempt_staging_path_key UNIQUE (staging_path)
    )
    """,
    """
    CREATE UNIQUE INDEX attempt_one_winner ON gobblin.attempt (sequence_id, multi_work_unit)
        WHERE state = 'STAGED'
    """,
    "CREATE INDEX attempt_to_clean ON gobblin.attempt (dataset_id) WHERE cleaned_at IS NULL",
    """
    CREATE TABLE gobblin.ledger (
        ledger_id BIGINT GENERATED ALWAYS AS IDENTITY,
        key_id BIGINT NOT NULL,
        sequence_id UUID NOT NULL,
        is_generation BOOLEAN NOT NULL,
        low JSONB,
        high JSONB,
        low_bytes BYTEA,
        high_bytes BYTEA,
        reread_from JSONB,
        active BOOLEAN DEFAULT true NOT NULL,
        retired_by UUID,
        CONSTRAINT ledger_pkey PRIMARY KEY (ledger_id),
        CONSTRAINT ledger_generation_check CHECK (is_generation = (high_bytes IS NULL)),
        CONSTRAINT ledger_retired_check CHECK (active = (retired_by IS NULL)),
        CONSTRAINT ledger_no_overlap
            EXCLUDE USING gist (int8range(key_id, key_id, '[]'::text) WITH =,
                gobblin.wm_range(low_bytes, high_bytes) WITH &&)
            WHERE (active AND NOT is_generation),
        CONSTRAINT ledger_key_id_fkey FOREIGN KEY(key_id) REFERENCES gobblin.watermark_key (key_id),
        CONSTRAINT ledger_sequence_id_fkey FOREIGN KEY(sequence_id)
            REFERENCES gobblin.commit_sequence (sequence_id),
        CONSTRAINT ledger_retired_by_fkey FOREIGN KEY(retired_by)
            REFERENCES gobblin.commit_sequence (sequence_id)
    )
    """,
    "CREATE INDEX ledger_key_id_idx ON gobblin.ledger (key_id)",
    "CREATE UNIQUE INDEX ledger_one_generation ON gobblin.ledger (key_id) WHERE active AND is_generation",
    "CREATE INDEX ledger_sequence_id_idx ON gobblin.ledger (sequence_id)",
    """
    CREATE TABLE gobblin.planned_move (
        sequence_id UUID NOT NULL,
        key_id BIGINT NOT NULL,
        old_watermark JSONB,
        old_bytes BYTEA,
        new_watermark JSONB,
        new_bytes BYTEA,
        low JSONB,
        low_bytes BYTEA,
        reread_from JSONB,
        CONSTRAINT planned_move_pkey PRIMARY KEY (sequence_id, key_id),
        CONSTRAINT planned_move_interval_check CHECK ((new_bytes IS NULL) = (low_bytes IS NULL)),
        CONSTRAINT planned_move_sequence_id_fkey FOREIGN KEY(sequence_id)
            REFERENCES gobblin.commit_sequence (sequence_id),
        CONSTRAINT planned_move_key_id_fkey FOREIGN KEY(key_id)
            REFERENCES gobblin.watermark_key (key_id)
    )
    """,
    """
    CREATE TABLE gobblin.run_dataset (
        run_id UUID NOT NULL,
        dataset_id BIGINT NOT NULL,
        partition TEXT NOT NULL,
        outcome TEXT NOT NULL,
        sequence_id UUID,
        error TEXT,
        figures JSONB,
        ended_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        CONSTRAINT run_dataset_pkey PRIMARY KEY (run_id, dataset_id, partition),
        CONSTRAINT run_dataset_outcome_check
            CHECK (outcome IN ('COMMITTED', 'PARTIAL', 'FAILED', 'SKIPPED', 'BLOCKED', 'FENCED')),
        CONSTRAINT run_dataset_run_id_fkey FOREIGN KEY(run_id) REFERENCES gobblin.run (run_id),
        CONSTRAINT run_dataset_dataset_id_fkey FOREIGN KEY(dataset_id)
            REFERENCES gobblin.dataset (dataset_id),
        CONSTRAINT run_dataset_sequence_id_fkey FOREIGN KEY(sequence_id)
            REFERENCES gobblin.commit_sequence (sequence_id)
    )
    """,
    """
    CREATE TABLE gobblin.work_unit (
        work_unit_id UUID NOT NULL,
        sequence_id UUID NOT NULL,
        multi_work_unit INTEGER,
        key_name TEXT NOT NULL,
        number INTEGER NOT NULL,
        low JSONB,
        expected_high JSONB,
        actual_high JSONB,
        reread_from JSONB,
        estimated_row_count BIGINT,
        state TEXT NOT NULL,
        CONSTRAINT work_unit_pkey PRIMARY KEY (work_unit_id),
        CONSTRAINT work_unit_state_check
            CHECK (state IN ('PENDING', 'RUNNING', 'SUCCESSFUL', 'COMMITTED', 'FAILED', 'CANCELLED', 'SKIPPED')),
        CONSTRAINT work_unit_sequence_id_fkey FOREIGN KEY(sequence_id)
            REFERENCES gobblin.commit_sequence (sequence_id)
    )
    """,
    "CREATE INDEX work_unit_sequence_id_idx ON gobblin.work_unit (sequence_id)",
    """
    CREATE TABLE gobblin.segment (
        segment_id UUID NOT NULL,
        sequence_id UUID NOT NULL,
        attempt_id UUID NOT NULL,
        dataset_id BIGINT NOT NULL,
        number INTEGER NOT NULL,
        role TEXT NOT NULL,
        partition TEXT NOT NULL,
        payload BYTEA NOT NULL,
        digest BYTEA NOT NULL,
        step_count BIGINT NOT NULL,
        file_count BIGINT NOT NULL,
        row_count BIGINT NOT NULL,
        file_bytes BIGINT NOT NULL,
        file_schema JSONB,
        sealed BOOLEAN DEFAULT false NOT NULL,
        retired_by UUID,
        retired_at TIMESTAMP WITH TIME ZONE,
        removed_at TIMESTAMP WITH TIME ZONE,
        CONSTRAINT segment_pkey PRIMARY KEY (segment_id),
        CONSTRAINT segment_attempt_id_number_key UNIQUE (attempt_id, number),
        CONSTRAINT segment_role_check CHECK (role IN ('data', 'quarantine', 'dead_letter')),
        CONSTRAINT segment_sequence_id_fkey FOREIGN KEY(sequence_id)
            REFERENCES gobblin.commit_sequence (sequence_id),
        CONSTRAINT segment_attempt_id_fkey FOREIGN KEY(attempt_id)
            REFERENCES gobblin.attempt (attempt_id),
        CONSTRAINT segment_dataset_id_fkey FOREIGN KEY(dataset_id)
            REFERENCES gobblin.dataset (dataset_id),
        CONSTRAINT segment_retired_by_fkey FOREIGN KEY(retired_by)
            REFERENCES gobblin.commit_sequence (sequence_id)
    )
    """,
    """
    CREATE INDEX segment_active ON gobblin.segment (dataset_id, partition)
        WHERE sealed AND retired_by IS NULL
    """,
    "CREATE INDEX segment_sequence_id_idx ON gobblin.segment (sequence_id)",
    """
    CREATE INDEX segment_to_remove ON gobblin.segment (retired_at)
        WHERE retired_by IS NOT NULL AND removed_at IS NULL
    """,
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
