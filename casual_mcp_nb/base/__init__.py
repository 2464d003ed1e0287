"""Values and helpers that all rooms share. Nothing here opens a connection or a display."""
