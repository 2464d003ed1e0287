"""A package, so that its browser is closed after its last test."""
