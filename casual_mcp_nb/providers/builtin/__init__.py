"""The providers that ship with the package, each one module with its `SPEC`.

The registry finds every module in here.
"""
