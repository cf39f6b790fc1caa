"""Publishing exactly once.

The promise. Every row of a sealed attempt becomes visible in the ledger exactly once, and the watermark
moves in the same transaction. If a process is killed at any moment, the next run, the recovery sensor or a
person at the command line completes the sealed sequence before anything new is read.

Who is authoritative. Postgres, and its clock. Until a sequence is DONE, a listing of the storage shows which
of its steps have happened; from then on its segments are the list of its files. A directory listing never
defines a dataset.

The states of a sequence.

    BUILDING ──seal──▶ PREPARED ──finish──▶ DONE
        │                │   ▲ │
        │           block│   │resume
        │                ▼   │ │
        │              BLOCKED │
        │                │     │abandon
        ▼                ▼     ▼
     ABORTED ◀──────── ABANDONING

The edges are written once, in ``model.sequence_state``; the log's statements and constraints are made from them.

What a sequence does. A sequence has steps, each of a kind (``steps``). A step is prepared, verified by identity,
executed by one atomic effect, and undone if the sequence is abandoned. The protocol asks no step for its kind. Kinds
are built in, offered by a package's entry point, or registered by code (``step_kinds``). If a kind says that it can't
be undone, abandoning is refused before it begins.

Names. Most steps publish names that are always new. Steps at given names (``fixed_names.named_steps``) are fenced on
storage too. A process that executes or abandons their sequence under another fence than the sealing one first takes the
attempt's directory away from earlier owners (``attempt_capture``). In an object store nothing can be taken away: there
a step is an upload that its first completion uses up (``files.upload_step``).

Destinations that are no file systems. A destination that can change a mark of the lane in one transaction with the rows
is loaded from staged files, by a step that looks at the mark (``destinations.postgres``). Before such a sequence is
abandoned, the mark is changed to refuse it. If the mark says that the rows are there, the sequence can only be
completed.

What each crash leaves, and who repairs it.

    while taking            a raised fence: the next taker
    attempt being written   a partial staging directory: cleanup, under a new lease
    staged, not sealed      BUILDING: ABORTED by the next taker, and read again
    sealed, steps open      PREPARED: rolled forward, each step verified first
    while capturing         the attempt's directory under one of the fences in the log: the next owner finds it
    opened, not closed      PREPARED or ABANDONING: a closed directory's mode is in the log, and closed at either's end
    steps done, not synced  PREPARED: the renames may be gone; verified and done again
    finish sent             PREPARED or DONE: read again under the lock, then issued again
    finished, not announced DONE: its events are sent again under the sequence's id
    while loading a table   all rows with the lane's mark, or nothing: PREPARED, the mark is looked at first
    while abandoning        ABANDONING: goes on abandoning
    only the mark refuses   PREPARED or BLOCKED: can't be completed any more, and is abandoned again
    kind not installed      BLOCKED, with the package to install: resumed once it is
    destination not there   another identity file at its root, or none: nothing runs until it is mounted again
    log older than storage  markers that the log does not have: nothing runs until a person reconciles
    attempt removed         at given names BLOCKED: abandoned by the files at the names
    log older, one open     at given names: `reconcile --set-aside` ends it without undoing it (``reconciliation``)
    while reconciling       the dataset stays stopped: the same command again
    while folding           all of the fold, or nothing: the next cleanup

What is not promised. Events reach Dagster at least once, not exactly once. A reader of the directory instead of
the ledger may see parts of a sequence before DONE, and two generations during a refresh. Storage that lies about
syncing, or that loses synced bytes, is not covered.
"""
