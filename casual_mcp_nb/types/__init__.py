"""Plain values that every other room may use. Nothing here opens a file, a connection or a display."""
