"""Distcp as a job kind: whole files are copied, and published at fixed names.

The way of one file, from the listing to the steps of its publication:

    fs.tree.TreeEntry              as a side lists it; ``copyable.ConvertedEntry`` behind converters
    difference.Difference          both sides of a path, and why it must change
    copyable.PlannedFile           in a ``CopyItem`` of the plan, as its writer gets it
    transfer.bins.Bin              the items of one writer; ``SplitPart``: a part of a large file
    transfer.writing.ResultRow     what became of it, by numbers, in a ``RowBatch``
    transfer_port.FileResult       the same by names, whichever way it was copied
    file_staging.CopiedFiles       the identities of all staged files, in columns
    named_outputs.FilesAtNames     some thousand of them for the destination, which makes steps of them in columns

To an object store, a ``PlannedFile`` becomes an ``uploading.UploadOrder``, a ``StagedUpload``, and an ``ObjectAtName``.
"""
