"""The tables of the service.

Revision ID: 0001
"""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    _make_flows()
    _make_executions()
    _make_catalogs()


def _make_flows() -> None:
    op.execute("""
        CREATE TABLE gobblin_service.flow (
            flow_id UUID NOT NULL,
            flow_group TEXT COLLATE "C" NOT NULL,
            flow_name TEXT COLLATE "C" NOT NULL,
            version BIGINT NOT NULL,
            state TEXT NOT NULL,
            reasons JSONB NOT NULL,
            runs_when_able BOOLEAN NOT NULL,
            generation INTEGER DEFAULT 0 NOT NULL,
            owner TEXT NOT NULL,
            owner_groups JSONB NOT NULL,
            change BIGINT NOT NULL,
            created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
            updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
            deleted_at TIMESTAMP WITH TIME ZONE,
            CONSTRAINT flow_pkey PRIMARY KEY (flow_id),
            CONSTRAINT flow_state_check CHECK (state IN ('ACTIVE', 'PENDING', 'PAUSED')),
            CONSTRAINT flow_version_check CHECK (version > 0)
        )
    """)
    op.execute("CREATE INDEX flow_change ON gobblin_service.flow (change)")
    op.execute("""
        CREATE UNIQUE INDEX flow_live ON gobblin_service.flow (flow_group, flow_name) WHERE deleted_at IS NULL
    """)
    op.execute("""
        CREATE INDEX flow_pending ON gobblin_service.flow (created_at, flow_id)
                WHERE state = 'PENDING' AND deleted_at IS NULL
    """)
    op.execute("""
        CREATE TABLE gobblin_service.flow_job (
            job_name TEXT NOT NULL,
            flow_id UUID NOT NULL,
            node TEXT NOT NULL,
            generation INTEGER NOT NULL,
            log_id UUID NOT NULL,
            template_uri TEXT NOT NULL,
            source_node TEXT NOT NULL,
            source_place TEXT NOT NULL,
            root TEXT NOT NULL,
            bound_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
            CONSTRAINT flow_job_pkey PRIMARY KEY (job_name),
            CONSTRAINT flow_job_flow_id_node_generation_key UNIQUE (flow_id, node, generation),
            CONSTRAINT flow_job_job_name_check CHECK (job_name ~ '^[a-z][a-z0-9_]{0,47}$'),
            CONSTRAINT flow_job_flow_id_fkey FOREIGN KEY(flow_id) REFERENCES gobblin_service.flow (flow_id)
        )
    """)
    op.execute("""
        CREATE TABLE gobblin_service.flow_version (
            flow_id UUID NOT NULL,
            version BIGINT NOT NULL,
            request_id UUID NOT NULL,
            config JSONB NOT NULL,
            made_by TEXT NOT NULL,
            made_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
            CONSTRAINT flow_version_pkey PRIMARY KEY (flow_id, version),
            CONSTRAINT flow_version_flow_id_fkey FOREIGN KEY(flow_id) REFERENCES gobblin_service.flow (flow_id),
            CONSTRAINT flow_version_request_id_key UNIQUE (request_id)
        )
    """)


def _make_executions() -> None:
    op.execute("""
        CREATE TABLE gobblin_service.flow_execution (
            execution_id BIGINT GENERATED ALWAYS AS IDENTITY,
            request_id UUID NOT NULL,
            flow_id UUID NOT NULL,
            flow_version BIGINT NOT NULL,
            status TEXT NOT NULL,
            message TEXT DEFAULT '' NOT NULL,
            asked_by TEXT NOT NULL,
            selection JSONB NOT NULL,
            started_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
            cancel_asked_at TIMESTAMP WITH TIME ZONE,
            ended_at TIMESTAMP WITH TIME ZONE,
            CONSTRAINT flow_execution_pkey PRIMARY KEY (execution_id),
            CONSTRAINT flow_execution_flow_id_fkey FOREIGN KEY(flow_id, flow_version)
                REFERENCES gobblin_service.flow_version (flow_id, version),
            CONSTRAINT flow_execution_status_check
                CHECK (status IN ('COMPILED', 'PENDING', 'ORCHESTRATED', 'RUNNING', 'COMPLETE', 'FAILED', 'CANCELLED')),
            CONSTRAINT flow_execution_ended_at_check
                CHECK ((status IN ('CANCELLED', 'COMPLETE', 'FAILED')) = (ended_at IS NOT NULL)),
            CONSTRAINT flow_execution_request_id_key UNIQUE (request_id)
        )
    """)
    op.execute("CREATE INDEX flow_execution_of_flow ON gobblin_service.flow_execution (flow_id, execution_id)")
    op.execute("""
        CREATE UNIQUE INDEX flow_execution_open ON gobblin_service.flow_execution (flow_id) WHERE ended_at IS NULL
    """)
    op.execute("""
        CREATE TABLE gobblin_service.job_execution (
            execution_id BIGINT NOT NULL,
            number INTEGER NOT NULL,
            job_name TEXT NOT NULL,
            executor TEXT NOT NULL,
            log TEXT NOT NULL,
            ticket_id UUID NOT NULL,
            ticket JSON NOT NULL,
            after JSONB NOT NULL,
            status TEXT NOT NULL,
            message TEXT DEFAULT '' NOT NULL,
            send_begun_at TIMESTAMP WITH TIME ZONE,
            cancel_ticket_id UUID,
            cancel_verb TEXT,
            cancel_sent_at TIMESTAMP WITH TIME ZONE,
            started_at TIMESTAMP WITH TIME ZONE,
            ended_at TIMESTAMP WITH TIME ZONE,
            processed_count BIGINT DEFAULT 0 NOT NULL,
            low_watermarks JSONB DEFAULT '{}' NOT NULL,
            high_watermarks JSONB DEFAULT '{}' NOT NULL,
            read_attempt INTEGER DEFAULT -1 NOT NULL,
            read_number INTEGER DEFAULT 0 NOT NULL,
            CONSTRAINT job_execution_pkey PRIMARY KEY (execution_id, number),
            CONSTRAINT job_execution_status_check
                CHECK (status IN ('COMPILED', 'PENDING', 'ORCHESTRATED', 'RUNNING', 'COMPLETE', 'FAILED', 'CANCELLED')),
            CONSTRAINT job_execution_ended_at_check
                CHECK ((status IN ('CANCELLED', 'COMPLETE', 'FAILED')) = (ended_at IS NOT NULL)),
            CONSTRAINT job_execution_cancel_verb_check CHECK (cancel_verb IN ('CANCEL', 'DELETE')),
            CONSTRAINT job_execution_cancel_ticket_id_check CHECK ((cancel_verb IS NULL) = (cancel_ticket_id IS NULL)),
            CONSTRAINT job_execution_execution_id_fkey FOREIGN KEY(execution_id)
                REFERENCES gobblin_service.flow_execution (execution_id),
            CONSTRAINT job_execution_job_name_fkey FOREIGN KEY(job_name) REFERENCES gobblin_service.flow_job (job_name),
            CONSTRAINT job_execution_ticket_id_key UNIQUE (ticket_id),
            CONSTRAINT job_execution_cancel_ticket_id_key UNIQUE (cancel_ticket_id)
        )
    """)
    op.execute("CREATE INDEX job_execution_of_job ON gobblin_service.job_execution (job_name, execution_id)")
    op.execute("""
        CREATE INDEX job_execution_open ON gobblin_service.job_execution (execution_id, number) WHERE ended_at IS NULL
    """)
    op.execute("""
        CREATE INDEX job_execution_to_send ON gobblin_service.job_execution (execution_id, number)
                WHERE status IN ('COMPILED', 'PENDING')
    """)
    op.execute("""
        CREATE INDEX job_execution_to_cancel ON gobblin_service.job_execution (execution_id, number)
                WHERE cancel_ticket_id IS NOT NULL AND cancel_sent_at IS NULL
    """)


def _make_catalogs() -> None:
    op.execute("""
        CREATE TABLE gobblin_service.catalog_change (
            catalog TEXT NOT NULL,
            number BIGINT NOT NULL,
            changed_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
            CONSTRAINT catalog_change_pkey PRIMARY KEY (catalog)
        )
    """)
    op.execute("""
        CREATE TABLE gobblin_service.topology_entry (
            kind TEXT NOT NULL,
            name TEXT NOT NULL,
            options JSONB NOT NULL,
            changed_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
            CONSTRAINT topology_entry_pkey PRIMARY KEY (kind, name),
            CONSTRAINT topology_entry_kind_check CHECK (kind IN ('executors', 'nodes'))
        )
    """)
    op.execute("""
        CREATE TABLE gobblin_service.request (
            request_key TEXT NOT NULL,
            digest TEXT NOT NULL,
            flow_id UUID NOT NULL,
            made_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
            CONSTRAINT request_pkey PRIMARY KEY (request_key),
            CONSTRAINT request_flow_id_fkey FOREIGN KEY(flow_id) REFERENCES gobblin_service.flow (flow_id)
        )
    """)
