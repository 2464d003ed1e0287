"""The MCP hosts whose files are read: how their files are called, where the servers are in them,
and where that is documented.

A new host whose servers are in a shape that another one has is one row here. What its entries have
of their own is in `host_servers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path


@dataclass(frozen=True)
class Host:
    """A host.

    Args:
        name: Its name.
        files: The ends of its files' paths, with `*` for any characters.
        servers: The key under which it has servers.
        source: Where its format is documented, read in November 2026.
    """

    name: str
    files: tuple[str, ...]
    servers: str
    source: str


HOSTS = (
    Host(
        "Claude Desktop",
        ("claude_desktop_config.json",),
        "mcpServers",
        "https://modelcontextprotocol.io/docs/develop/connect-local-servers",
    ),
    Host(
        "Claude Code",
        (".mcp.json", ".claude.json", ".claude/settings*.json"),
        "mcpServers",
        "https://code.claude.com/docs/en/mcp",
    ),
    Host(
        "VS Code",
        ("mcp.json", "Code*/User/settings.json", ".vscode/settings.json"),
        "servers",
        "https://code.visualstudio.com/docs/copilot/reference/mcp-configuration",
    ),
    Host("Cursor", (".cursor/mcp.json",), "mcpServers", "https://cursor.com/docs/mcp"),
    Host(
        "Windsurf",
        ("mcp_config.json",),
        "mcpServers",
        "https://docs.windsurf.com/windsurf/cascade/mcp",
    ),
    Host(
        "Cline",
        ("cline_mcp_settings.json",),
        "mcpServers",
        "https://docs.cline.bot/mcp/configuring-mcp-servers",
    ),
    Host(
        "Roo Code",
        (".roo/mcp.json", "mcp_settings.json"),
        "mcpServers",
        "https://docs.roocode.com/features/mcp/using-mcp-in-roo",
    ),
    Host(
        "Gemini CLI",
        (".gemini/settings.json",),
        "mcpServers",
        "https://geminicli.com/docs/tools/mcp-server",
    ),
    Host(
        "Copilot CLI",
        ("mcp-config.json",),
        "mcpServers",
        "https://docs.github.com/en/copilot/how-tos/copilot-cli/customize-copilot/add-mcp-servers",
    ),
    Host(
        "Zed",
        ("zed/settings.json", ".zed/settings.json"),
        "context_servers",
        "https://zed.dev/docs/ai/mcp",
    ),
    Host(
        "opencode",
        ("opencode.json", "opencode.jsonc"),
        "mcp",
        "https://opencode.ai/docs/mcp-servers",
    ),
    Host(
        "Codex", (".codex/config.toml",), "mcp_servers", "https://developers.openai.com/codex/mcp"
    ),
    Host(
        "Vibe",
        (".vibe/config.toml",),
        "mcp_servers",
        "https://docs.mistral.ai/vibe/code/cli/mcp-servers",
    ),
    Host(
        "marimo",
        ("marimo.toml",),
        "mcp.mcpServers",
        "https://docs.marimo.io/guides/editor_features/mcp",
    ),
    Host(
        "jupyter-ai",
        (".jupyter/mcp_settings.json",),
        "mcp_servers",
        "https://jupyter-ai.readthedocs.io/en/latest/users",
    ),
    Host(
        "Goose",
        ("goose/config.yaml", "goose/config/config.yaml"),
        "extensions",
        "https://block.github.io/goose/docs/guides/config-files",
    ),
    Host(
        "Continue",
        (".continue/config.yaml", ".continue/mcpServers/*"),
        "mcpServers",
        "https://docs.continue.dev/customize/deep-dives/mcp",
    ),
    Host(
        "LibreChat",
        ("librechat.yaml",),
        "mcpServers",
        "https://www.librechat.ai/docs/configuration/librechat_yaml/object_structure/mcp_servers",
    ),
)


def host_of(file: Path) -> Host | None:
    """Find the host whose file this is by its path, or None.

    The longest pattern counts, as `.cursor/mcp.json` has two.
    """
    path = f"/{file.absolute().as_posix()}"
    matching = []
    for host in HOSTS:
        for pattern in host.files:
            if fnmatchcase(path, f"*/{pattern}"):
                matching.append((len(pattern), host))
    if not matching:
        return None
    return max(matching, key=lambda match: match[0])[1]
