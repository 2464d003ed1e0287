"""Functions of a notebook as tools: what a model reads of them, what is filled in for them, where they run."""

from __future__ import annotations

from casual_mcp_nb.toolbox.context import ToolContext
from casual_mcp_nb.toolbox.output import ToolOutput
from casual_mcp_nb.toolbox.parameters import Inject
from casual_mcp_nb.toolbox.toolbox import NOTEBOOK, Toolbox

__all__ = ["NOTEBOOK", "Inject", "ToolContext", "ToolOutput", "Toolbox"]
