"""SFTP, as a source of copies, by asyncssh: the third version of the protocol, as OpenSSH speaks it.

    settings   how a server is reached, from the environment
    login      a connection: the host key proved, the user logged in
    session    the requests of one connection, each wait bounded
    answers    what a server says: entries, and failures as families of errors
    client     one server: connections that are opened again, in an event loop's own thread
    listing    trees in byte order
    tree       the port ``fs.ranged``
    files      bytes by ranges
    opening    the registration of the scheme

All requests only read, so that each may be sent again when a connection was lost.
"""
