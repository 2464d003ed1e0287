"""Doors for other programs: a session's chat as an HTTP API, and its tools as one MCP server."""
