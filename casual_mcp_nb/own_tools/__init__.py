"""Notebook functions as tools: the definitions that a model reads, injected values, and the thread
they run on.
"""
