"""The command `casual-mcp-nb`: what the magics do, from a shell.

Modules of this room import only light modules at their top, so that `--help` and `--version` are quick; a command imports
what it needs when it runs.
"""
