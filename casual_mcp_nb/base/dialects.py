"""What providers and hosts take of a tool's definition: the one table that the door for schemas and
every report read.

Each line of `DIALECTS` and `HOSTS` says where it was read. Refusals are quoted from public reports,
because no provider documents all of them. See `casual_mcp_nb.base.tool_door` for what is done about
them. `checked` is the day on which the sources were read. What has no source is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Patterns = Literal["python", "plain", "anchored"]
"""The regular expressions that a provider takes.

- `python`: whatever Python's `re` compiles.
- `plain`: the same without look-around, back references and classes such as `\\p{L}`.
- `anchored`: the same, from `^` to `$`, because it becomes a part of a grammar.
"""


@dataclass(frozen=True)
class StrictLimits:
    """The bounds of a schema that OpenAI enforces by itself (`strict`).

    Args:
        depth: How deep objects may nest.
        properties: How many properties a schema may have, all objects together.
        choices: How many values all enums may have together.
        many_choices: From so many values on, one enum of texts may have `choice_characters` in all.
        characters: How many characters names, enum values and constants may have in all.
    """

    depth: int = 10
    properties: int = 5_000
    choices: int = 1_000
    many_choices: int = 250
    choice_characters: int = 15_000
    characters: int = 120_000


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """What one provider's API takes of a tool's definition.

    Args:
        title: The provider in words.
        sources: Where the facts were read.
        checked: When.
        names: The names of tools that it takes, or None if that is not known.
        choice_at_top: Whether `anyOf`, `oneOf`, `allOf`, `not`, `if`, `enum` and `$ref` may be at
            the top of a schema.
        keys: The property names that it takes, or None for any.
        bare_arrays: Whether an array may lack `items`, and may have `prefixItems` instead.
        patterns: The regular expressions that it takes.
        text_choices: Whether an enum may have texts only, and `const` is unknown.
        unlisted_required: Whether `required` may name what `properties` lacks.
        schema_word: Whether `$schema` may be there.
        most_repeats: The largest bound on length or number of items, or None for any.
        longest_description: How many characters a tool's description may have, or None if no limit
            is known. It is only cut after a refusal, because models and gateways differ.
        most_tools: How many tools a request may have, or None if no limit is known.
        strict: The bounds of strict schemas, or None without them.
    """

    title: str
    sources: tuple[str, ...]
    checked: str = ""
    names: re.Pattern[str] | None = None
    choice_at_top: bool = False
    keys: re.Pattern[str] | None = None
    bare_arrays: bool = True
    patterns: Patterns = "python"
    text_choices: bool = False
    unlisted_required: bool = True
    schema_word: bool = True
    most_repeats: int | None = None
    longest_description: int | None = None
    most_tools: int | None = None
    strict: StrictLimits | None = None


_CHECKED = "2026-11-29"
_CLAUDE_KEYS = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_OPENAI_SOURCES = (
    # "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top
    # level", 2026-01
    "https://github.com/langchain-ai/langchainjs/issues/9804",
    # "'object' is not of type 'object', 'boolean'", 2026-05
    "https://github.com/smallmain/vscode-unify-chat-provider/issues/162",
    # "… is not a 'regex'" (\p{…}) and "regex lookaround is not supported", 2026-05 to 2026-09
    "https://github.com/BerriAI/litellm/pull/40485",
    "https://github.com/decolua/9router/issues/1556",
    # "string too long. Expected a string with maximum length 1024", 2024-11 to 2026-09
    "https://github.com/higebu/3gpp-mcp/pull/238",
    # Strict schemas: limits, and the keywords that are enforced.
    "https://platform.openai.com/docs/guides/structured-outputs",
    # "tools[48].name: string does not match pattern … '^[a-zA-Z0-9_-]+$'", 2025-12
    "https://github.com/openai/codex/issues/8174",
    # "tools[5].name: string too long. Expected a string with maximum length 64", 2025-06; the
    # Responses API takes 128, 2026-09
    "https://github.com/openai/codex/issues/1289",
    "https://github.com/openai/codex/issues/46188",
    # "tools: array too long. Expected an array with maximum length 128", 2025-11
    "https://github.com/zed-industries/zed/issues/42393",
)

DIALECTS: Mapping[str, Dialect] = {
    "openai": Dialect(
        title="OpenAI",
        sources=_OPENAI_SOURCES,
        checked=_CHECKED,
        names=re.compile(r"[a-zA-Z0-9_-]{1,64}"),
        bare_arrays=False,
        patterns="plain",
        longest_description=1_024,
        most_tools=128,
        strict=StrictLimits(),
    ),
    "openai-responses": Dialect(
        title="OpenAI (Responses)",
        sources=_OPENAI_SOURCES,
        checked=_CHECKED,
        names=re.compile(r"[a-zA-Z0-9_-]{1,128}"),
        bare_arrays=False,
        patterns="plain",
        most_tools=128,
        strict=StrictLimits(),
    ),
    "anthropic": Dialect(
        title="Anthropic",
        sources=(
            # "Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'", 2025-07 to 2026-09
            "https://github.com/decocms/studio/pull/6874",
            "https://github.com/ComposioHQ/composio/issues/3500",
            # "input_schema does not support oneOf, allOf, or anyOf at the top level", 2025-08 to
            # 2026-09
            "https://github.com/anthropics/claude-code/issues/5973",
            "https://github.com/dearlordylord/huly-mcp/issues/66",
            # "JSON schema is invalid. It must match JSON Schema draft 2020-12"
            "https://docs.claude.com/en/docs/agents-and-tools/tool-use/implement-tool-use",
            # "tools.134.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'", 2026-03
            "https://github.com/github/copilot-cli/issues/1879",
            # "tools.18.custom.name: String should have at most 128 characters", 2026-09
            "https://github.com/anthropics/claude-code/issues/96152",
        ),
        checked=_CHECKED,
        names=re.compile(r"[a-zA-Z0-9_-]{1,128}"),
        keys=_CLAUDE_KEYS,
    ),
    "gemini": Dialect(
        title="Gemini",
        sources=(
            # "enum: only allowed for STRING type", 2026-05
            "https://github.com/JetBrains/mcp-jetbrains/issues/71",
            # $schema is not among the keywords, 2026-04
            "https://github.com/GetStream/Vision-Agents/pull/513",
            # "items: missing field", 2025-12; "required[0]: property is not defined", 2026-05
            "https://github.com/cline/cline/issues/7926",
            "https://github.com/probelabs/probe/issues/569",
            # "Invalid function name. Must start with a letter or an underscore. Must be … with a
            # maximum length of 64", 2025-11
            "https://github.com/kaitranntt/ccs/issues/25",
        ),
        checked=_CHECKED,
        names=re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}"),
        bare_arrays=False,
        text_choices=True,
        unlisted_required=False,
        schema_word=False,
    ),
    "ollama": Dialect(
        title="Ollama",
        sources=(
            # "json: cannot unmarshal array into Go struct field
            # .tools.function.parameters.properties", 2025-04
            "https://github.com/ollama/ollama/issues/10328",
            # "cannot unmarshal object into Go struct field ToolProperty.required", 2026-08
            "https://github.com/ollama/ollama/issues/18051",
        ),
        checked="2026-11-27",
        patterns="anchored",
    ),
    "compatible": Dialect(
        title="llama.cpp and other compatible servers",
        sources=(
            # "Pattern must start with '^' and end with '$'", 2026-02
            "https://github.com/containers/kubernetes-mcp-server/issues/758",
            # "failed to parse grammar": look-ahead, 2026-07; long texts and lists, 2026-09
            "https://github.com/codefuturist/email-mcp/issues/58",
            "https://github.com/firecrawl/firecrawl/issues/4512",
            # Behind a gateway, any provider of this table can be the one that answers: $schema is
            # refused by Kimi, 2026-04
            "https://github.com/TencentCloudBase/CloudBase-AI-Toolkit/pull/626",
        ),
        checked="2026-11-27",
        keys=_CLAUDE_KEYS,
        bare_arrays=False,
        patterns="anchored",
        unlisted_required=False,
        schema_word=False,
        most_repeats=1_000,
    ),
}
"""What each provider takes, by its wire format.

`compatible` is any server that speaks OpenAI's format at another address.
"""

PLAIN = Dialect(
    title="providers that are not in the table",
    sources=(),
    keys=_CLAUDE_KEYS,
    bare_arrays=False,
    patterns="anchored",
    text_choices=True,
    unlisted_required=False,
    schema_word=False,
    most_repeats=1_000,
)
"""What every provider of the table takes, for one of another package that does not say more."""


def dialect_of(wire: str, host: str, *, at_home: bool) -> Dialect:
    """Choose the line of the table for a client, or `PLAIN` for a format that has none.

    Args:
        wire: The name of its wire format.
        host: The host that it asks.
        at_home: Whether that host is the provider's own.
    """
    if wire == "litellm" or (wire == "openai" and not at_home):
        is_google = host == "googleapis.com" or host.endswith(".googleapis.com")
        return DIALECTS["gemini" if is_google else "compatible"]
    return DIALECTS.get(wire, PLAIN)


@dataclass(frozen=True, kw_only=True)
class Host:
    """What a host, which is another MCP client, does with the tools of the same servers.

    Args:
        sources: Where the facts were read.
        checked: When.
        longest_description: How many characters of a description it shows to the model, or None for
            all.
        longest_instructions: The same for a server's instructions.
        longest_name: How many characters a tool's name may have, with its server's where the host
            puts that in front.
        letters: The characters that a tool's name may have, or None if that is not known.
        bad_names: What becomes of a tool with another name: it is left out, or gets a name that the
            host makes.
        costs_all: Whether one such tool costs its server all its tools.
        name_prefix: What it puts in front of a tool's name, with `{server}` for the server's.
        most_tools: How many tools it offers, or None if no limit is known.
        dialects: The providers whose refusals its users meet.
    """

    title: str
    sources: tuple[str, ...]
    checked: str
    longest_description: int | None = None
    longest_instructions: int | None = None
    longest_name: int | None = None
    letters: re.Pattern[str] | None = None
    bad_names: Literal["left out", "renamed"] = "left out"
    costs_all: bool = False
    name_prefix: str = ""
    most_tools: int | None = None
    dialects: tuple[str, ...] = field(default=())


_LETTERS = re.compile(r"[a-zA-Z0-9_-]+")

HOSTS: tuple[Host, ...] = (
    Host(
        title="Claude Code",
        sources=(
            "https://docs.claude.com/en/docs/claude-code/mcp",
            "https://github.com/xsyetopz/claudetto/wiki/Claude-Code-MCP-Runtime",
            # "truncates tool descriptions and server instructions at 2KB each", 2026-04
            "https://github.com/RedHatInsights/insights-mcp/issues/340",
        ),
        checked=_CHECKED,
        longest_description=2_048,
        longest_instructions=2_048,
        longest_name=128,
        name_prefix="mcp__{server}__",
        dialects=("anthropic",),
    ),
    Host(
        title="Cursor",
        sources=(
            "https://easymanage.com/res/docs/tutorials/ai-agent/chapter-3-mcp-advanced",
            # "Combined server and tool name length (60) exceeds 60 characters", 2026-02
            "https://github.com/ComposioHQ/composio/issues/2788",
            # "Tool name must only contain alphanumeric characters and underscores", of names with
            # dots, 2026-07. Names with hyphens work.
            "https://github.com/webstudio-is/webstudio/issues/5960",
        ),
        checked=_CHECKED,
        longest_name=60,
        letters=_LETTERS,
        name_prefix="{server}:",
    ),
    Host(
        title="VS Code",
        sources=(
            "https://www.mcpbundles.com/guides/how-many-tools",
            "https://github.com/postmanlabs/postman-mcp-server/pull/26",
        ),
        checked=_CHECKED,
        most_tools=128,
    ),
    Host(
        title="Claude Desktop",
        sources=(
            # "FrontendRemoteMcpToolDefinition.name: String should match pattern
            # '^[a-zA-Z0-9_-]{1,64}$'", and one such name costs all tools, 2026-08
            "https://github.com/evoila/meho/issues/2745",
            # The same for names that are too long, 2026-03
            "https://github.com/anthropics/claude-code/issues/34960",
        ),
        checked=_CHECKED,
        longest_name=64,
        letters=_LETTERS,
        costs_all=True,
        dialects=("anthropic",),
    ),
    Host(
        title="Codex",
        sources=(
            # "raised MAX_TOOL_NAME_LENGTH from 64 to 128", 2026-09
            "https://github.com/openai/codex/issues/46188",
            # "replaces all non-conforming characters with _", 2026-01
            "https://github.com/openai/codex/pull/8694",
        ),
        checked=_CHECKED,
        longest_name=128,
        letters=_LETTERS,
        bad_names="renamed",
        name_prefix="mcp__{server}__",
        dialects=("openai-responses",),
    ),
)
"""Hosts that change or leave out tools, see `Host`."""
