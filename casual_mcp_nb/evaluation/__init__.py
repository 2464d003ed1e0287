"""Measure how well tools are found, and find the defects of a catalog that make it hard."""

from __future__ import annotations

from casual_mcp_nb.evaluation._files import load_cases, load_catalog, save_cases
from casual_mcp_nb.evaluation._from_turns import cases_of
from casual_mcp_nb.evaluation._judge import Strategy
from casual_mcp_nb.evaluation._lint import lint
from casual_mcp_nb.evaluation.discovery import evaluate
from casual_mcp_nb.types.evaluation import Case

__all__ = ["Case", "Strategy", "cases_of", "evaluate", "lint", "load_cases", "load_catalog", "save_cases"]
