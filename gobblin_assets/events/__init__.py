"""Events of publications, sent at least once to the sinks that a job names.

    outbox    what was not delivered to each sink, from the log, in batches
    sinks     the port of a sink, and the registry of kinds
    jsonl     a file of JSON lines
    webhook   HTTP POST

An event is a JSON object. ``event`` is FilePublished, FileRemoved, DatasetPublished or DatasetPublishFailed;
``sequence_id`` is that of the publication, by which a receiver leaves out what it has seen: an event of a file is the
same if sequence and path are, one of a dataset if the sequence is. The files of a publication come before its dataset.
"""
