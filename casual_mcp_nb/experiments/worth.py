"""How much each server and tool is worth: the effect of leaving it out, and whether to load it, defer it or turn it off."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from casual_mcp_nb.base.config import ExcludeSpec, ToolSetConfig
from casual_mcp_nb.base.displayable import DisplayableList, count
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.base.tool import Catalog, ToolName, ToolSpec
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.experiments.cases import ToolUseCase
from casual_mcp_nb.experiments.prompt_cache import REUSED_WEIGHT
from casual_mcp_nb.experiments.records import ArmResults, RunResults, compare_arms
from casual_mcp_nb.experiments.statistics import Interval, PairedDifference, share_interval

Advice = Literal["load", "defer", "off"]

SEARCH_TOKENS = 1_100
"""The cost of a search: about 440 tokens for text and 650 for definitions, measured with real MCP servers."""
EXPENSIVE_SHARE = 0.05
"""A tool with at least this share of all definition tokens is measured even if no case expects it."""
ENOUGH = 10
"""How many clusters it takes before the advice to turn something off can be certain."""
NOTHING = 0.02
"""A tool that gains no more right calls than this counts as useless."""


@dataclass(frozen=True)
class ToolWorth:
    """A server's or tool's gain and cost.

    Args:
        name: The server, or the tool as `server:tool`.
        tokens: Its definitions' estimated tokens.
        right: How much it raises the share of right runs: with it minus without it.
        input_tokens: How many input tokens it adds to a run, as the session is set.
        used: How often it is called, as a share of runs.
        needed: How many cases expect it.
        advice: Whether to load it, to defer it, or to turn it off.
        certain: Whether the whole intervals lead to the same advice. Turning it off also takes ten cases.
        loaded_price: Estimated input tokens that it adds to a run if it is loaded, reused ones counted as a tenth.
        deferred_price: The same if it is deferred, for a search in each run that calls it. No arm measures it.
        deferred_range: The same at both ends of the interval for `used`.
    """

    name: str
    tokens: int
    right: PairedDifference
    input_tokens: PairedDifference | None
    used: Interval
    needed: int
    advice: Advice
    certain: bool
    loaded_price: float
    deferred_price: float
    deferred_range: tuple[float, float]

    @property
    def is_server(self) -> bool:
        """Whether it is a whole server."""
        return ":" not in self.name


@dataclass(frozen=True, repr=False)
class Worth(DisplayableList[ToolWorth], items="worths"):
    """How much a session's servers and tools are worth for the cases.

    Args:
        worths: Servers, then tools, the most useful first.
        results: The runs.
        servers: All servers that were in use.
    """

    worths: tuple[ToolWorth, ...]
    results: RunResults
    servers: tuple[str, ...]
    _apply: Callable[[Worth, str | None], None] | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        advice = [sum(worth.advice == each for worth in self.worths) for each in ("load", "defer", "off")]
        return f"<Worth: {count(len(self), 'server or tool')}, load {advice[0]}, defer {advice[1]}, off {advice[2]}>"

    def __reduce__(self) -> Any:
        # The session stays in its process.
        return Worth, (self.worths, self.results, self.servers)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return {worth.name: worth for worth in self.worths}[key]
        return super().__getitem__(key)

    @property
    def tool_set(self) -> ToolSetConfig:
        """A toolset without those to turn off."""
        off = {worth.name for worth in self.worths if worth.advice == "off"}
        rules: dict[str, Any] = {}
        for server in self.servers:
            excluded = [ToolName.split(name).tool for name in sorted(off) if name.startswith(f"{server}:")]
            if server not in off:
                rules[server] = ExcludeSpec(exclude=tuple(excluded)) if excluded else True
        return ToolSetConfig(description=f"Measured over {count(len(self.results.cases), 'case')}", servers=rules)

    def applied_to(self, selection: Selection) -> Selection:
        """Apply the advice to a copy of a selection: toolset, server modes, and tools to keep loaded."""
        changed = selection.snapshot()
        changed.tool_set = self.tool_set
        for worth in self.worths:
            if worth.is_server:
                if worth.advice != "off":
                    changed.servers[worth.name] = "loaded" if worth.advice == "load" else "deferred"
            elif worth.advice == "load" and worth.name not in changed.always_loaded:
                changed.always_loaded = (*changed.always_loaded, worth.name)
        if "deferred" in changed.servers.values():
            changed.discovery = True
        return changed

    def apply(self, name: str | None = None) -> None:
        """Use the advice in the session: write the toolset, and load or defer servers and tools.

        Args:
            name: Save the toolset in the config file under this name, or None to use it without saving.

        Raises:
            UsageError: The session is in another process, or the toolset cannot be saved.
        """
        if self._apply is None:
            raise UsageError(
                "These results have no session.", hint="Apply them yourself: session.selection = worth.applied_to(…)."
            )
        self._apply(self, name)

    def rows(self) -> list[dict[str, Any]]:
        """Build a list of rows, one per server or tool, for a DataFrame or a CSV file."""
        return [
            {
                "name": worth.name,
                "advice": worth.advice,
                "certain": worth.certain,
                "gain": worth.right.mean,
                "gain_low": worth.right.low,
                "gain_high": worth.right.high,
                "p": worth.right.p,
                "tokens": worth.tokens,
                "added_tokens": worth.input_tokens.mean if worth.input_tokens else None,
                "used": worth.used.value,
                "needed": worth.needed,
                "loaded_price": worth.loaded_price,
                "deferred_price": worth.deferred_price,
                "deferred_low": worth.deferred_range[0],
                "deferred_high": worth.deferred_range[1],
            }
            for worth in self.worths
        ]


def targets_of(cases: Iterable[ToolUseCase], tools: Sequence[ToolSpec]) -> list[str]:
    """List the candidates to measure: each server, and each tool that is expensive or expected in a case.

    Args:
        cases: The cases.
        tools: The tools that the model can see.
    """
    catalog = Catalog(tools)
    total = sum(tool.tokens for tool in tools)
    wanted = {tool.tool_name for case in cases for name in case.tools for tool in catalog.matches(name)[:1]}
    single = {server for server, offered in catalog.by_server.items() if len(offered) == 1}
    chosen = [
        str(tool.tool_name)
        for tool in catalog
        if tool.server not in single and (tool.tool_name in wanted or tool.tokens >= EXPENSIVE_SHARE * total)
    ]
    return [*catalog.by_server, *chosen]


def worth_of(results: RunResults, cases: Sequence[ToolUseCase], tools: Sequence[ToolSpec]) -> tuple[ToolWorth, ...]:
    """Compute how much each server or tool is worth, if an arm leaves it out.

    Args:
        results: Results with an arm for everything, and one without each.
        cases: The cases.
        tools: The tools that the model could see.
    """
    base = next(arm for arm in results.values() if not arm.arm.without)
    worths = []
    for arm in results.values():
        if len(arm.arm.without) == 1 and (each := _worth(arm.arm.without[0], base, arm, cases, tools)) is not None:
            worths.append(each)
    return tuple(sorted(worths, key=lambda worth: (not worth.is_server, -worth.right.mean, worth.tokens)))


def _worth(
    name: str, base: ArmResults, arm: ArmResults, cases: Sequence[ToolUseCase], tools: Sequence[ToolSpec]
) -> ToolWorth | None:
    comparison = compare_arms(arm, base)
    if comparison is None:
        return None
    own = [tool for tool in tools if name in (tool.server, str(tool.tool_name))]
    names = {str(tool.tool_name) for tool in own}
    groups = base.by_case
    uses = [sum(not names.isdisjoint(record.called) for record in records) for records in groups.values()]
    used = share_interval(uses, [*map(len, groups.values())], [records[0].cluster for records in groups.values()])
    needed = sum(not names.isdisjoint(records[0].needed) for records in groups.values())
    steps, tokens = base.mean("steps"), sum(tool.tokens for tool in own)
    loaded = tokens * (1 + REUSED_WEIGHT * max((steps.value if steps else 1) - 1, 0))

    deferred, low, high = (share * SEARCH_TOKENS for share in (used.value, used.low, used.high))
    right, added = comparison.right, comparison.measures.get("input_tokens")
    advice: Advice
    if right.high < 0 or (right.mean <= NOTHING and not needed and not used.value):
        advice, certain = "off", right.high <= NOTHING and right.clusters >= ENOUGH
    elif right.mean <= 0 and right.high <= NOTHING:
        advice, certain = "off", right.high <= 0 and right.clusters >= ENOUGH
    else:
        advice = "load" if loaded <= deferred else "defer"
        certain = (loaded <= low) == (loaded <= high) and right.low > 0
    return ToolWorth(name, tokens, right, added, used, needed, advice, certain, loaded, deferred, (low, high))
