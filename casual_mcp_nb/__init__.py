"""casual_mcp_nb: the notebook workbench for LLM tool-calling over MCP.

In a notebook: `%load_ext casual_mcp_nb`, then `%mcp demo`. In a script: `from casual_mcp_nb import Session`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.types.displayable import Display, draw_with

if TYPE_CHECKING:
    from casual_llm.messages import (
        AssistantMessage,
        AssistantToolCall,
        AssistantToolCallFunction,
        ChatMessage,
        ImageContent,
        SystemMessage,
        TextContent,
        ToolResultMessage,
        UserMessage,
    )
    from IPython.core.interactiveshell import InteractiveShell

    from casual_mcp_nb.config import load_config
    from casual_mcp_nb.connections import ToolCache, tool_from_mcp, tools_from_mcp
    from casual_mcp_nb.discovery import (
        SearchToolsTool,
        SyntheticTool,
        SyntheticToolResult,
        ToolSearchIndex,
        generate_manifest,
        partition_tools,
    )
    from casual_mcp_nb.engine.approval import ApprovalRequest
    from casual_mcp_nb.engine.chat import McpToolChat
    from casual_mcp_nb.engine.options import TurnOptions
    from casual_mcp_nb.errors import (
        AnswerCutError,
        AnswerLimitError,
        AuthenticationError,
        BadRequestError,
        CassetteError,
        CassetteMismatchError,
        CasualMcpError,
        ClosedError,
        ConfigError,
        ConnectError,
        ContentRefusedError,
        ContextOverflowError,
        ExtractionError,
        IncompleteStreamError,
        LimitError,
        MalformedAnswerError,
        MaxIterationsError,
        MissingDependencyError,
        NativeDeferralError,
        OverloadedError,
        PermissionDeniedError,
        ProviderError,
        ProviderTimeout,
        RateLimitError,
        RepeatedCallError,
        ResourceError,
        ServerError,
        TemplateError,
        ToolCallError,
        ToolSetError,
        ToolTimeoutError,
        TrustRequiredError,
        UnknownNameError,
        UsageError,
    )
    from casual_mcp_nb.evaluation import Case, evaluate
    from casual_mcp_nb.notebook.nested import enable_nested_asyncio
    from casual_mcp_nb.providers import ModelFactory, scripted_model
    from casual_mcp_nb.session import Session
    from casual_mcp_nb.toolbox import Inject, ToolContext, ToolOutput
    from casual_mcp_nb.types.comparison import Comparison
    from casual_mcp_nb.types.config import Config, ExcludeSpec, ToolSetConfig
    from casual_mcp_nb.types.conversation import Conversation
    from casual_mcp_nb.types.event import (
        ApprovalAnswered,
        ApprovalAsked,
        ContextTrimmed,
        Event,
        HostedCall,
        ModelRetry,
        ModelWait,
        Notice,
        PrefixChanged,
        Request,
        SearchRow,
        ServerLog,
        StepFinished,
        StepStarted,
        TextDelta,
        TextEdited,
        ToolFinished,
        ToolProgress,
        ToolsSearched,
        ToolStarted,
        TurnFinished,
        TurnStarted,
    )
    from casual_mcp_nb.types.plan import PlannedCall, PlannedCalls
    from casual_mcp_nb.types.search import SearchHit, SearchResults
    from casual_mcp_nb.types.selection import Selection
    from casual_mcp_nb.types.session import Manifest, ServerStatus
    from casual_mcp_nb.types.stats import ChatStats
    from casual_mcp_nb.types.step import Step, ToolCall
    from casual_mcp_nb.types.tool import ToolName, ToolSpec
    from casual_mcp_nb.types.trace import Trace, Turn

__version__ = "0.1.0"

_NAMES = {
    "config": "load_config",
    "connections": "ToolCache tool_from_mcp tools_from_mcp",
    "discovery": "SearchToolsTool SyntheticTool SyntheticToolResult ToolSearchIndex generate_manifest partition_tools",
    "engine.approval": "ApprovalRequest",
    "engine.chat": "McpToolChat",
    "engine.options": "TurnOptions",
    "errors": (
        "AnswerCutError AnswerLimitError AuthenticationError BadRequestError CassetteError CassetteMismatchError "
        "CasualMcpError ClosedError ConfigError ConnectError ContentRefusedError ContextOverflowError "
        "ExtractionError IncompleteStreamError LimitError MalformedAnswerError MaxIterationsError "
        "MissingDependencyError NativeDeferralError OverloadedError PermissionDeniedError ProviderError "
        "ProviderTimeout RateLimitError RepeatedCallError ResourceError ServerError TemplateError ToolCallError "
        "ToolSetError ToolTimeoutError TrustRequiredError UnknownNameError UsageError"
    ),
    "evaluation": "Case evaluate",
    "notebook.nested": "enable_nested_asyncio",
    "providers": "ModelFactory scripted_model",
    "session": "Session",
    "toolbox": "Inject ToolContext ToolOutput",
    "types.comparison": "Comparison",
    "types.config": "Config ExcludeSpec ToolSetConfig",
    "types.conversation": "Conversation",
    "types.event": (
        "ApprovalAnswered ApprovalAsked ContextTrimmed Event HostedCall ModelRetry ModelWait Notice PrefixChanged "
        "Request SearchRow ServerLog StepFinished StepStarted TextDelta TextEdited ToolFinished ToolProgress "
        "ToolStarted ToolsSearched TurnFinished TurnStarted"
    ),
    "types.plan": "PlannedCall PlannedCalls",
    "types.search": "SearchHit SearchResults",
    "types.selection": "Selection",
    "types.session": "Manifest ServerStatus",
    "types.stats": "ChatStats",
    "types.step": "Step ToolCall",
    "types.tool": "ToolName ToolSpec",
    "types.trace": "Trace Turn",
}
_MESSAGES = (
    "AssistantMessage AssistantToolCall AssistantToolCallFunction ChatMessage ImageContent SystemMessage "
    "TextContent ToolResultMessage UserMessage"
)
_HOMES = {
    **{name: f"{__name__}.{home}" for home, names in _NAMES.items() for name in names.split()},
    **dict.fromkeys(_MESSAGES.split(), "casual_llm.messages"),
}

__all__ = [
    "AnswerCutError",
    "AnswerLimitError",
    "ApprovalAnswered",
    "ApprovalAsked",
    "ApprovalRequest",
    "AssistantMessage",
    "AssistantToolCall",
    "AssistantToolCallFunction",
    "AuthenticationError",
    "BadRequestError",
    "Case",
    "CassetteError",
    "CassetteMismatchError",
    "CasualMcpError",
    "ChatMessage",
    "ChatStats",
    "ClosedError",
    "Comparison",
    "Config",
    "ConfigError",
    "ConnectError",
    "ContentRefusedError",
    "ContextOverflowError",
    "ContextTrimmed",
    "Conversation",
    "Event",
    "ExcludeSpec",
    "ExtractionError",
    "HostedCall",
    "ImageContent",
    "IncompleteStreamError",
    "Inject",
    "LimitError",
    "MalformedAnswerError",
    "Manifest",
    "MaxIterationsError",
    "McpToolChat",
    "MissingDependencyError",
    "ModelFactory",
    "ModelRetry",
    "ModelWait",
    "NativeDeferralError",
    "Notice",
    "OverloadedError",
    "PermissionDeniedError",
    "PlannedCall",
    "PlannedCalls",
    "PrefixChanged",
    "ProviderError",
    "ProviderTimeout",
    "RateLimitError",
    "RepeatedCallError",
    "Request",
    "ResourceError",
    "SearchHit",
    "SearchResults",
    "SearchRow",
    "SearchToolsTool",
    "Selection",
    "ServerError",
    "ServerLog",
    "ServerStatus",
    "Session",
    "Step",
    "StepFinished",
    "StepStarted",
    "SyntheticTool",
    "SyntheticToolResult",
    "SystemMessage",
    "TemplateError",
    "TextContent",
    "TextDelta",
    "TextEdited",
    "ToolCache",
    "ToolCall",
    "ToolCallError",
    "ToolContext",
    "ToolFinished",
    "ToolName",
    "ToolOutput",
    "ToolProgress",
    "ToolResultMessage",
    "ToolSearchIndex",
    "ToolSetConfig",
    "ToolSetError",
    "ToolSpec",
    "ToolStarted",
    "ToolTimeoutError",
    "ToolsSearched",
    "Trace",
    "TrustRequiredError",
    "Turn",
    "TurnFinished",
    "TurnOptions",
    "TurnStarted",
    "UnknownNameError",
    "UsageError",
    "UserMessage",
    "enable_nested_asyncio",
    "evaluate",
    "generate_manifest",
    "load_config",
    "partition_tools",
    "scripted_model",
    "tool_from_mcp",
    "tools_from_mcp",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _display() -> Display:
    from casual_mcp_nb import display

    return display


draw_with(_display)


def load_ipython_extension(shell: InteractiveShell) -> None:
    """`%load_ext casual_mcp_nb`: add the magics. Prints nothing, connects nothing, imports no engine."""
    from casual_mcp_nb.magics import register

    register(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """`%unload_ext casual_mcp_nb`: close what the magics opened and take them away."""
    from casual_mcp_nb.magics import unregister

    unregister(shell)
