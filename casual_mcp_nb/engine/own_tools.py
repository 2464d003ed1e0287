"""A person's own synthetic tools: checked when they are added, guarded when a model calls them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from casual_mcp_nb.discovery.synthetic import BUILT_IN, SyntheticTool, SyntheticToolResult, with_loaded
from casual_mcp_nb.errors import UsageError, shown
from casual_mcp_nb.toolbox.function_tool import checked_schema
from casual_mcp_nb.toolbox.toolbox import error_text, short_traceback
from casual_mcp_nb.types.delivery import Delivery
from casual_mcp_nb.types.event import CALL_TOOL, SYNTHETIC
from casual_mcp_nb.types.tool import Catalog, ToolName, ToolSpec

MAX_CONTENT = 12_000
"""How many characters of its result a model reads."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

OnLog = Callable[[str, str, str], None]


@dataclass(frozen=True, eq=False)
class OwnTool:
    """A person's own synthetic tool.

    Args:
        tool: The tool.
        on_log: Called with the name of the tool, a level and a text that the person should know.

    Attributes:
        spec: What a model reads of it.

    Raises:
        UsageError: It is not a synthetic tool, or has a name that a tool of this package has.
    """

    tool: SyntheticTool
    on_log: OnLog
    spec: ToolSpec = field(init=False)

    def __post_init__(self) -> None:
        name, definition = getattr(self.tool, "name", None), _plain(getattr(self.tool, "definition", None))
        if not isinstance(definition, Mapping) or not callable(getattr(self.tool, "execute", None)):
            raise UsageError(
                f"A {type(self.tool).__name__} is not a synthetic tool.",
                hint="It needs a name, a definition (name, description, parameters) and an async execute(args).",
            )
        if not isinstance(name, str) or not _NAME.fullmatch(name) or definition.get("name", name) != name:
            raise UsageError(f"{shown(str(name))} cannot be the name of a tool.", hint="Use up to 64 letters, digits, _ and -.")
        if name in BUILT_IN or name == CALL_TOOL:
            raise UsageError(f"{shown(name)} is a built-in tool.", hint="Give yours another name.")
        parameters = definition.get("parameters") or {"type": "object", "properties": {}}
        schema = checked_schema(parameters, name)
        spec = ToolSpec(SYNTHETIC, name, str(definition.get("description", "")), schema, wire_name=name)
        object.__setattr__(self, "spec", spec)

    def check(self, catalog: Catalog) -> None:
        """Raise an error if a server has a tool of this name.

        Raises:
            UsageError: One has.
        """
        if clashing := catalog.by_wire_name.get(self.spec.name):
            raise UsageError(
                f"The synthetic tool {shown(self.spec.name)} has the name by which a model calls {clashing.tool_name}.",
                hint="Give it another name.",
            )


def _plain(definition: Any) -> Any:
    """Convert a definition to a mapping, where it is casual-llm's `Tool`."""
    if isinstance(getattr(definition, "input_schema", None), dict):
        return {"name": definition.name, "description": definition.description, "parameters": definition.input_schema}
    return definition


class GuardedTool:
    """A user's tool for one turn. An error in it fails only its call, and it loads only the tools that the turn permits.

    Args:
        own: The tool.
        deferred: The tools that it can load.
        loaded: Those that the conversation has loaded already.
        delivery: How the model gets what it loads.
    """

    def __init__(
        self,
        own: OwnTool,
        deferred: Collection[ToolSpec],
        loaded: Collection[ToolName],
        delivery: Delivery = "definitions",
    ) -> None:
        self._own = own
        # Only the results of the built-in tools tell a provider what was found.
        self._delivery: Delivery = "bridge" if delivery == "bridge" else "definitions"
        self._deferred = deferred
        self._loaded = set(loaded)

    @property
    def name(self) -> str:
        """Its name."""
        return self._own.spec.name

    @property
    def definition(self) -> dict[str, Any]:
        """The definition that the model reads."""
        return dict(self._own.spec.definition)

    async def execute(self, args: Mapping[str, Any]) -> SyntheticToolResult:
        """Run the tool."""
        try:
            result = await self._own.tool.execute(args)
            content, tools = str(result.content), [self._tool_name(tool) for tool in result.newly_loaded_tools]
        except Exception as error:
            self._log("error", short_traceback(error))
            return SyntheticToolResult(f"Error: {error_text(error)}", [], None)
        if len(content) > MAX_CONTENT:
            content = f"{content[:MAX_CONTENT]}\n[… cut: {MAX_CONTENT:,} of {len(content):,} characters …]"
        permitted = {tool.tool_name: tool for tool in self._deferred}
        if outside := [str(name) for name in dict.fromkeys(tools) if name not in permitted]:
            listed = ", ".join(map(shown, outside[:5]))
            self._log("warning", f"Not loaded, because they are not deferred tools of this turn: {listed}.")
        new = [permitted[name] for name in dict.fromkeys(tools) if name in permitted and name not in self._loaded]
        content, inside = with_loaded(content, new, self._delivery)
        self._loaded.update(tool.tool_name for tool in inside)
        return SyntheticToolResult(content, list(inside), None)

    def _tool_name(self, tool: Any) -> ToolName:
        """Identify a tool: one of ours, or one of the MCP SDK's, which knows only its name."""
        if isinstance(tool, ToolSpec):
            return tool.tool_name
        named = (each.tool_name for each in self._deferred if tool.name == each.wire_name or tool.name in each.aliases)
        return next(named, ToolName("", tool.name))

    def _log(self, level: str, text: str) -> None:
        self._own.on_log(self.name, level, text)
