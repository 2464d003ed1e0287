"""Clients and models."""

from __future__ import annotations

from casual_mcp_nb.providers.factory import ModelFactory

__all__ = ["ModelFactory"]
