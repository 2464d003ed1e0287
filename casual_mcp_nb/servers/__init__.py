"""The MCP client: one connection per server, all concurrent, with their tools as one catalog.

Importing this package does not import the SDK. The first connection does.
"""
