"""The transfer of planned copies into an attempt's directory: bytes and attributes, nothing is published here.

    bins           which items are copied together, by one writer
    transfer_port  the order, the results, and the port that a way to copy implements
    preserve       which attributes a copy keeps
    file_copy      one file's bytes, also of a store, with the checks that its source did not change
    attributes     owner, mode, extended attributes and mtime of a staged file
    journal        files that a writer finished, which a later attempt may take
    writing        one bin, by one writer: in a thread, a process, or an executor; over a network: ``remote_writing``
    crews          writers that work side by side, as threads or as processes
    results        the results of a bin's rows, and files that several writers fill
    local          this machine's threads or processes, as the plan needs them

A writer writes only into its own directory of the attempt, which the driver made before. A writer never makes a missing
parent: if the attempt's directory is gone, a new owner has renamed it, and a writer that made it again would write
where the new owner looks. A file that a writer does not report does not count.
"""
