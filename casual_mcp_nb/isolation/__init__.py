"""Run work that untrusted text could make endless in a process that can be killed.

A server's or model's regular expression can keep Python's `re` busy for years, and a template can
build a string larger than memory. Neither can be interrupted, and both hold the interpreter. Such
work goes to a `Worker`: a separate process with limits on time, memory and size.
"""
