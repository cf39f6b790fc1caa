"""HDFS: bytes by hdfs-native, names and their file ids by WebHDFS.

    settings     how a cluster is reached, from the environment
    web          WebHDFS requests: sent once, each failure as a family of errors
    answers      what a NameNode says, and which family its exceptions are of
    streams      streams of a file's bytes
    file_system  the ports of destinations: ``fs.named_files``, ``fs.staging``
    tree         the port of sources: ``fs.ranged``
    probe        a publication, rehearsed
    opening      the registration of the scheme

hdfs-native tells no file id, and repeats calls by itself; what happened to a rename must be known, so that each call
that changes a name goes through WebHDFS, where this package sees whether an answer came.
"""
