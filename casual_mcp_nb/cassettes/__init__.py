"""Cassettes: what models and servers answered, recorded in one file and played back without them."""
