"""Tool discovery: deferred tools stay out of the request, and the model finds them by search.

Pure functions, no I/O.
"""
