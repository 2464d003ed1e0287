"""Tool discovery: deferred tools stay out of the request, and the model finds them by search.

No I/O, except that `audit_conversation` can read a file.
"""
