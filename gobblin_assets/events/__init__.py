"""Events of publications, sent at least once to the sinks that a job names.

    outbox    what was not delivered to each sink, from the log, in batches
    sinks     the port of a sink, and the registry of kinds
    jsonl     a file of JSON lines
    webhook   HTTP POST

An event is a JSON object. ``event`` is FilePublished, FileRemoved, DatasetPublished or DatasetPublishFailed;
``sequence_id`` is the publication's. By it a receiver leaves out events that it has seen: two events of a file are the
same if they have the same sequence and path, and two events of a dataset if they have the same sequence. The files of a
publication come before its dataset.
"""
