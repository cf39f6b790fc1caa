"""Publishing exactly once.

The promise. Every row of a sealed attempt becomes visible in the ledger exactly once, and the watermark
moves in the same transaction; whatever is killed, whenever, the next run, the recovery sensor or a person
at the command line completes what was sealed before anything new is read.

Who is authoritative. Postgres, and its clock. Until a sequence is DONE, a listing of the storage tells which
of its steps have happened; from then on its segments are the list of its files. A directory listing never
tells what a dataset is.

The states of a sequence.

    BUILDING ──seal──▶ PREPARED ──finish──▶ DONE
        │                │   ▲ │
        │           block│   │resume
        │                ▼   │ │
        │              BLOCKED │
        │                │     │abandon
        ▼                ▼     ▼
     ABORTED ◀──────── ABANDONING

The edges are written once, in ``model.sequence_state``; statements and constraints of the log are made from there.

What a sequence does. Its steps, each of a kind (``steps``): prepared, verified by identity, executed by one atomic
effect, and undone where the sequence is abandoned. The protocol asks no step which kind it is of. Kinds are built in,
offered by a package's entry point, or registered by code (``step_kinds``). One that can't be undone says so, and
abandoning is refused before it begins.

What each crash leaves, and who repairs it.

    while taking            a raised fence: the next taker
    attempt being written   a partial staging directory: cleanup, under a new lease
    staged, not sealed      BUILDING: ABORTED by the next taker, and read again
    sealed, steps open      PREPARED: rolled forward, each step verified first
    steps done, not synced  PREPARED: the renames may be gone; verified and done again
    finish sent             PREPARED or DONE: read again under the lock, then issued again
    finished, not announced DONE: its events are sent again under the sequence's id
    while abandoning        ABANDONING: goes on abandoning
    kind not installed      BLOCKED, with the package to install: resumed once it is
    destination not there   another file at its root, or none: nothing runs until it is mounted again
    log older than storage  markers that it can't explain: nothing runs until a person reconciles
    while reconciling       the dataset stays stopped: the same command again
    while folding           all of the fold, or nothing: the next cleanup

What is not promised. Events reach Dagster at least once. A reader of the directory, not of the ledger, may
see parts of a sequence before DONE, and two generations during a refresh. Storage that lies about syncing,
or that loses synced bytes, is outside.
"""
