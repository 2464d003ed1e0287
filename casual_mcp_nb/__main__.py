"""`python -m casual_mcp_nb`: the command `casual-mcp-nb`."""

from __future__ import annotations

import sys

from casual_mcp_nb.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
