"""Work that somebody else's text can make endless, done in a process that can be killed.

A pattern of a server can keep Python's `re` busy for years, and a template can build a text larger than the memory; neither can
be interrupted, and both keep the interpreter. Such work is handed to a `Worker`: another process, with limits of time, memory
and size, that knows nothing of this one.
"""

from casual_mcp_nb.isolation.worker import GaveUp, Worker

__all__ = ["GaveUp", "Worker"]
