"""The modules of casual-mcp by their names there; `casual_mcp_nb` finds them here, see its `__path__`."""
