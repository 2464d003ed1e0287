"""The error of a model."""

from __future__ import annotations

from casual_mcp_nb.compat import GenerationError

__all__ = ["GenerationError"]
