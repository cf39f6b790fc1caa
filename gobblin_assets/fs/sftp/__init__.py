"""SFTP, as a source of copies, by asyncssh: the third version of the protocol, as OpenSSH speaks it.

    login      a connection, as the environment says: the host key proved, the user logged in
    session    the requests of one connection, each wait bounded, and failures as families of errors
    client     one server: connections that are opened again, in an event loop's own thread
    listing    trees in byte order
    tree       the port ``fs.network_files``, bytes by ranges, and the registration of the scheme

All requests only read, so that each may be sent again when a connection was lost.
"""
