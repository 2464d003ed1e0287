"""`%mcp` and `%%mcp`. Importing this loads no engine: that happens at the first command."""

from __future__ import annotations

from casual_mcp_nb.magics.extension import register as register
from casual_mcp_nb.magics.extension import unregister as unregister
