"""Read the config file, the environment, `.env` and (in `templates`) the prompt templates."""

from casual_mcp_nb.config.environment import Settings, read_environment
from casual_mcp_nb.config.loader import load_config

__all__ = ["Settings", "load_config", "read_environment"]
