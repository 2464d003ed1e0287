"""Cassettes: models' and servers' answers, recorded in one file and played back without them."""
