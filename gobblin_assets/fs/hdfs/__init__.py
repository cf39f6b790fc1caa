"""HDFS: bytes by hdfs-native, names and their file ids by WebHDFS.

    hdfs_settings  how a cluster is reached, from the environment
    web            WebHDFS requests, sent once, and what a NameNode answers: each failure as a family of errors
    streams        streams of a file's bytes
    file_system    ports of destinations, ``fs.named_files``, ``network_files.StagingFiles``, and the registration
    tree           the port of sources: ``network_files.RangedFiles``

hdfs-native gives no file id, and repeats calls by itself. But the outcome of a rename must be known. So each call that
changes a name goes through WebHDFS, where this package sees whether an answer came.
"""
