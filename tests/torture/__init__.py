"""Torture of the real thing: ``python -m tests.torture --minutes n [--seed s] [--kinds small table …]``.

The promise under test: whatever process is killed, paused, cut off or left without space at any time, each row of the
sources is published exactly once in the end, and at no moment is anything visible that was not sealed. Of copies: both
trees are the same in the end, and at every moment each name holds one whole version that the log allows there.

Real processes, a real Postgres (of its own, since it is killed too) and real file systems. These kinds of runner:

    small   pre-forked processes that run the product's ``run_job`` with a few lines of pyarrow in Spark's place, under
            leases of 2 s; two destinations, one of them on a small tmpfs where mounting is permitted
    table   the same, over tables of that Postgres, which are read by Arrow, without Spark
    copy    the same, over trees of files that prove themselves and change all the time; jobs of the kind ``distcp``
    whole   fresh processes with Spark (a warm Connect server) that read a Postgres table while it is written to
    topic   fresh processes with Spark that run or stream Kafka topics, with a broker that is killed and paused too
    sink    pre-forked workers of a sink over topics with transactions and aborts, 4, 7, 2 at once, without Spark; the
            same broker, tmpfs, lanes that come and go
    sink-…  the same, whose rows go into tables of Postgres (sink-postgres), of Iceberg (sink-iceberg) or into topics
            (sink-kafka); a stranger at the topics and at the destination
    cdc     pre-forked workers that follow the tables of a second Postgres, which is written to (large transactions,
            rollbacks, subtransactions, truncates, columns) and killed, and whose walsenders are ended; a tmpfs

At the sources of table, copy and cdc runners there is a stranger as well, who locks tables, rewrites files in place,
and takes tables away from those who follow them. At the topics that sinks load from, the stranger makes the broker lose
logs of partitions, and makes topics again; at their destinations, tables and topics are renamed, removed, made again,
locked, and given triggers, and marks are removed. What is promised to be said of that has to be said, and is obeyed by
a person. ``--mutant`` gives workers that load rows a fault, so that they say nothing: the verdict must notice.

    schedule   what will be injected, and when: a pure function of the seed
    arena      the home, the server, the two destinations of small, table and copy runners
    stranger   what somebody else does to tables that are followed; load_stranger: to topics and destinations
    person     what workers have to say of it, and who obeys; load_person: of topics and destinations
    account    what must be published of topics whose logs are gone, and of rows that went with their place
    campaign   runs the schedule until the time is over, then lets everything come to rest
    observer   looks at the log five times a second, through a connection of its own
    watch      what the observer compares with it: rows, or files at their names
    history    the verdict: source and sink as multisets or trees, the log's history, the files, the events

The seed repeats the schedule: the same runners with the same fates in the same order, the same disturbances at the
same seconds. It does not repeat timing: the machine decides which statement a kill meets. So a failing seed is a good
start for a search, and no replay.
"""
