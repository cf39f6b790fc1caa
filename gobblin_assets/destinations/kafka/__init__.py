"""Topics of Kafka as destinations: rows are staged as files, and become records in one transaction with a mark.

The mark of a lane is the last record of its key in a compacted topic. A process that goes on with a publication first
fences off the lane's previous holder, and only then looks at the mark.
"""
