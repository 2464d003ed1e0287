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

    from casual_mcp_nb.compat import (
        McpClientConfig,
        McpModelConfig,
        McpToolChat,
        RemoteServerConfig,
        SearchToolsTool,
        StdioServerConfig,
        ToolCache,
        ToolDiscoveryConfig,
        ToolSearchIndex,
        ToolSetValidationError,
        configure_logging,
        generate_manifest,
        load_mcp_client,
        partition_tools,
        render_system_prompt,
        tool_from_mcp,
        tools_from_mcp,
    )
    from casual_mcp_nb.config import load_config
    from casual_mcp_nb.discovery import SyntheticTool, SyntheticToolResult
    from casual_mcp_nb.engine.approval import ApprovalRequest
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
        MissingFileError,
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
    from casual_mcp_nb.serve.mcp_endpoint import McpEndpoint
    from casual_mcp_nb.serve.service import Service
    from casual_mcp_nb.session import Session
    from casual_mcp_nb.telemetry import OpenTelemetry
    from casual_mcp_nb.toolbox.context import ToolContext
    from casual_mcp_nb.toolbox.output import ToolOutput
    from casual_mcp_nb.toolbox.parameters import Inject
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
        QuestionAnswered,
        QuestionAsked,
        Request,
        RequestEdited,
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
    from casual_mcp_nb.types.service import ServeLimits
    from casual_mcp_nb.types.session import Manifest, ServerStatus
    from casual_mcp_nb.types.stats import ChatStats, DiscoveryStats, TokenUsageStats, ToolCallStats
    from casual_mcp_nb.types.step import Step, ToolCall
    from casual_mcp_nb.types.tool import ToolName, ToolSpec
    from casual_mcp_nb.types.trace import Trace, Turn

__version__ = "0.1.0"

# `casual_mcp_nb.models` and the other modules of casual-mcp, in the one room that has its names.
__path__.append(f"{__path__[0]}/compat/paths")

_NAMES = {
    "compat": (
        "McpClientConfig McpModelConfig McpToolChat RemoteServerConfig SearchToolsTool StdioServerConfig ToolCache "
        "ToolDiscoveryConfig ToolSearchIndex ToolSetValidationError configure_logging generate_manifest load_mcp_client "
        "partition_tools render_system_prompt tool_from_mcp tools_from_mcp"
    ),
    "config": "load_config",
    "discovery": "SyntheticTool SyntheticToolResult",
    "engine.approval": "ApprovalRequest",
    "engine.options": "TurnOptions",
    "errors": (
        "AnswerCutError AnswerLimitError AuthenticationError BadRequestError CassetteError CassetteMismatchError "
        "CasualMcpError ClosedError ConfigError ConnectError ContentRefusedError ContextOverflowError "
        "ExtractionError IncompleteStreamError LimitError MalformedAnswerError MaxIterationsError "
        "MissingDependencyError MissingFileError NativeDeferralError OverloadedError PermissionDeniedError ProviderError "
        "ProviderTimeout RateLimitError RepeatedCallError ResourceError ServerError TemplateError ToolCallError "
        "ToolSetError ToolTimeoutError TrustRequiredError UnknownNameError UsageError"
    ),
    "evaluation": "Case evaluate",
    "notebook.nested": "enable_nested_asyncio",
    "providers": "ModelFactory scripted_model",
    "serve.mcp_endpoint": "McpEndpoint",
    "serve.service": "Service",
    "session": "Session",
    "telemetry": "OpenTelemetry",
    "toolbox.context": "ToolContext",
    "toolbox.output": "ToolOutput",
    "toolbox.parameters": "Inject",
    "types.comparison": "Comparison",
    "types.config": "Config ExcludeSpec ToolSetConfig",
    "types.conversation": "Conversation",
    "types.event": (
        "ApprovalAnswered ApprovalAsked ContextTrimmed Event HostedCall ModelRetry ModelWait Notice PrefixChanged "
        "QuestionAnswered QuestionAsked Request RequestEdited SearchRow ServerLog StepFinished StepStarted TextDelta "
        "TextEdited ToolFinished ToolProgress ToolStarted ToolsSearched TurnFinished TurnStarted"
    ),
    "types.plan": "PlannedCall PlannedCalls",
    "types.search": "SearchHit SearchResults",
    "types.selection": "Selection",
    "types.service": "ServeLimits",
    "types.session": "Manifest ServerStatus",
    "types.stats": "ChatStats DiscoveryStats TokenUsageStats ToolCallStats",
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
    "DiscoveryStats",
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
    "McpClientConfig",
    "McpEndpoint",
    "McpModelConfig",
    "McpToolChat",
    "MissingDependencyError",
    "MissingFileError",
    "ModelFactory",
    "ModelRetry",
    "ModelWait",
    "NativeDeferralError",
    "Notice",
    "OpenTelemetry",
    "OverloadedError",
    "PermissionDeniedError",
    "PlannedCall",
    "PlannedCalls",
    "PrefixChanged",
    "ProviderError",
    "ProviderTimeout",
    "QuestionAnswered",
    "QuestionAsked",
    "RateLimitError",
    "RemoteServerConfig",
    "RepeatedCallError",
    "Request",
    "RequestEdited",
    "ResourceError",
    "SearchHit",
    "SearchResults",
    "SearchRow",
    "SearchToolsTool",
    "Selection",
    "ServeLimits",
    "ServerError",
    "ServerLog",
    "ServerStatus",
    "Service",
    "Session",
    "StdioServerConfig",
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
    "TokenUsageStats",
    "ToolCache",
    "ToolCall",
    "ToolCallError",
    "ToolCallStats",
    "ToolContext",
    "ToolDiscoveryConfig",
    "ToolFinished",
    "ToolName",
    "ToolOutput",
    "ToolProgress",
    "ToolResultMessage",
    "ToolSearchIndex",
    "ToolSetConfig",
    "ToolSetError",
    "ToolSetValidationError",
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
    "configure_logging",
    "enable_nested_asyncio",
    "evaluate",
    "generate_manifest",
    "load_config",
    "load_mcp_client",
    "partition_tools",
    "render_system_prompt",
    "scripted_model",
    "tool_from_mcp",
    "tools_from_mcp",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if name == "models":
        return importlib.import_module(f"{__name__}.{name}")
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    if hasattr(value, "model_rebuild"):
        # Its fields and signature, which editors show, are left for the first use.
        value.model_rebuild()
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
