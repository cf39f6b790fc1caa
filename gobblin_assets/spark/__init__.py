"""Code on Spark sessions, except sources: sessions, the warm server, cancelling.

Spark is used through its DataFrame API only, so that the same code runs inside the process, on a cluster's
master and on Spark Connect. PySpark decides once in a process which kind of session its functions build for:
a process uses classic sessions or Connect, never both.
"""
