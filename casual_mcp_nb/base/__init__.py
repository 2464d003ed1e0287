"""Values and helpers that all packages share. Nothing here opens a connection or a display."""
