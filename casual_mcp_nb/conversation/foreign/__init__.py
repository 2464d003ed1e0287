"""Sessions of other agents as turns: Claude Code, Codex, and spans of OpenTelemetry.

Nothing in such a file is executed, and no path or address in it is followed.
"""
