"""Cassettes: answers of models and servers, recorded in one file and played back without them."""
