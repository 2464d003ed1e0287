"""Provider for the offline planner, which needs no key, network or SDK."""

from __future__ import annotations

from casual_mcp_nb.offline.client import OfflineClient
from casual_mcp_nb.providers.spec import ProviderSpec
from casual_mcp_nb.types.options import OPTION_NAMES

__all__ = ["SPEC", "OfflineClient"]

SPEC = ProviderSpec(
    name="offline",
    about="the demo planner that ships with the package (not an LLM)",
    place=60,
    build=lambda name, config: OfflineClient(),
    api="The offline planner",
    needs_key=False,
    is_language_model=False,
    lacking=OPTION_NAMES,
)
