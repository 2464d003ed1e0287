"""The browser of the sign-in scenarios: it visits an address as a person would who agrees to
everything.

The authorization server sends it on to the address where the client waits for the answer, which may
not be there yet.
"""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from threading import Event
from typing import Any

ATTEMPTS = 100
PAUSE_SECONDS = 0.1


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Do not follow."""


def main(address: str) -> None:
    """Visit an address and the one that it leads to."""
    try:
        urllib.request.build_opener(_Stay).open(address, timeout=10)
        return
    except urllib.error.HTTPError as answer:
        target = answer.headers.get("Location")
    for _ in range(ATTEMPTS if target else 0):
        try:
            urllib.request.urlopen(target, timeout=10).read()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            Event().wait(PAUSE_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1])
