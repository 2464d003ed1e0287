"""What the suite starts as its client: it has `client.py`, which has imported everything, fork one,
and ends as that does.

The arguments are where `client.py` listens, and the address of the server.
"""

import json
import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as there:
    there.connect(sys.argv[1])
    socket.send_fds(there, [json.dumps([sys.argv[2], dict(os.environ)]).encode()], [0, 1, 2])
    there.shutdown(socket.SHUT_WR)
    # Nothing where the client died.
    sys.exit(int(there.recv(3) or 1))
