"""Stands for an SDK that is not installed."""

raise ImportError(f"{__name__} is left out")
