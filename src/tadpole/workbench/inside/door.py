"""Opens the box's one way out: a listening socket in its network, handed to the machine outside.

A program of its own, run once in a fresh box before anything else. The socket is bound in the
box's empty network and accepted from outside of it: whoever connects to it in the box talks to
the proxy there, and no process in the box has to stay for that.
"""

import array
import socket
import sys


def main() -> None:
    """``door.py PORT PATH``: listen on 127.0.0.1:PORT, give the socket to whoever is at PATH."""
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=64)
    with socket.socket(socket.AF_UNIX) as door:
        door.connect(sys.argv[2])
        rights = array.array("i", [listener.fileno()])
        door.sendmsg([b"!"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        door.recv(1)  # until it was taken


if __name__ == "__main__":
    main()
