"""The engine: pure async, prints nothing, displays nothing, knows nothing of notebooks."""
