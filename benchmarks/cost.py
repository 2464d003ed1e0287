"""What conversations cost with a prompt cache, for each way in which a model gets the tools that a
search found.

    python benchmarks/cost.py [--data DIR] [--sizes 30,100,300,500,3000] [--turns 1,5,20] [--draws
    1] [--result 300] [--each]
                              [--whole] [--loops 1,10,40]

The tools are whole servers of real catalogs, drawn at random. The data folder holds
`NAME.catalog.jsonl` (one tool per line); without one, the catalog in `common/sample.py` is used.
Each conversation runs in the engine, on in-memory servers, with the real client of Anthropic
(Messages) and of OpenAI (Responses, and chat completions, where nothing is `native`), against a
server on 127.0.0.1 that plays the model: in the first two turns and in every fifth a search (with
`--each` in all of them), in each turn a call of a tool, then an answer. With every tool loaded
there is no search.

What is counted is what the providers are sent, in the order in which they render it: tools that are
not deferred, system prompt, messages, with the definitions of found tools where the provider adds
them. Of a request, the parts at its beginning that are those of the request before are read from
the cache, everything after them is written to it. Tokens are estimated as in the package, of JSON
without spaces, as it is sent. A token costs 1, read from the cache 0.1, written to it 1.25: as at
Anthropic, and at OpenAI from GPT-5.6 on.

The table has the cost of each conversation, in brackets as a share of that with `definitions` and
with every tool loaded. With `code`, each call is a program of one line that prints the whole
result. `--loops` compares ways to make many calls in one turn instead: one in each answer of the
model, all in one answer, and a program that makes them and prints a line. Of the repaired one, the
first version is as long and fails in its last line.

Under "again" are the tokens that were in the request before, behind the first change, and are
billed in full once more.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import jsonschema
from casual_llm.messages import UserMessage
from common import DATA, parser_for, sample
from common.figures import Figure
from fastmcp import FastMCP
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from kit.provider import answer
from kit.scripted_http import Reply, Request, ScriptedHttp

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.base.tokens import estimate_tokens
from casual_mcp_nb.base.tool import Catalog, ToolSpec
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.event import CALL_TOOL, RUN_CODE, SEARCH_TOOLS
from casual_mcp_nb.conversation.step import with_nested
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.discovery.search_tools import ToolSearchIndex
from casual_mcp_nb.discovery.signatures import identifier
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.setup import ChatSetup
from casual_mcp_nb.experiments.evaluate import load_catalog
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.servers.server_manager import ServerManager

FULL, CACHED, WRITTEN = 1.0, 0.1, 1.25
MODELS = {"anthropic": "claude-sonnet-5", "openai-responses": "gpt-5.6", "openai": "gpt-5.6"}
NOTHING = "every tool loaded"
WAYS = (NOTHING, "definitions", "native", "bridge", "code")
STEP_BY_STEP, IN_ONE_ANSWER, PROGRAM, REPAIRED = (
    "call by call",
    "calls in one answer",
    "program",
    "program, repaired",
)
LOOPS = {
    STEP_BY_STEP: "definitions",
    IN_ONE_ANSWER: "definitions",
    PROGRAM: "code",
    REPAIRED: "code",
}
"""Ways to make many calls, each with its delivery."""
SYSTEM = (
    "You are a helpful assistant. Use the tools where they help, and answer in a few sentences. "
    * 4
)
RESULT_LINE = "A line of the result of a tool, with a few numbers in it: 12, 345, 6789. "
ANSWER = "This is what I found out for you, in a sentence of the usual length. " * 6
MOST_WORDS = 12


@dataclass(frozen=True)
class Plan:
    """What happens in one turn: the query of its search, if it has one, and the tool that is called
    with its arguments.
    """

    query: str | None
    tool: ToolSpec
    arguments: Mapping[str, Any]
    times: int = 1


@dataclass
class Player:
    """Plays the model: gives each request the next answer."""

    provider: str
    answers: list[Any] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)

    def reply(self, request: Request) -> Reply:
        self.bodies.append(request.body)
        return Reply(body=self.answers.pop(0))


@dataclass
class Sums:
    """What the requests of a conversation add up to.

    Args:
        requests: How many there are.
        new: Tokens that were not in the request before: they are written to the cache.
        reused: Tokens that are read from the cache.
        again: Of the new ones, those that were in the request before, behind the first change.
    """

    requests: int = 0
    new: int = 0
    reused: int = 0
    again: int = 0

    @property
    def cost(self) -> float:
        return self.new * WRITTEN + self.reused * CACHED


class Listed(Tool):
    """A tool as its server lists it, with a result of a given length."""

    result: ClassVar[str] = RESULT_LINE

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        return ToolResult(
            content=f"{self.name} {json.dumps(arguments, sort_keys=True)}\n{self.result}"
        )


def drawn(catalogs: Sequence[Catalog], size: int, draw: random.Random) -> list[ToolSpec]:
    """Return a number of tools: whole servers of the catalogs, the last one cut."""
    servers = [tools for catalog in catalogs for tools in catalog.by_server.values()]
    draw.shuffle(servers)
    unique = {tools[0].server: tools for tools in servers}
    return [tool for tools in unique.values() for tool in tools][:size]


def example(schema: Mapping[str, Any]) -> Any:
    """Return a value that fits a schema, as far as that is simple."""
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    match kind[0] if isinstance(kind, list) else kind:
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case "array":
            return [example(schema.get("items") or {})]
        case "object":
            properties = schema.get("properties") or {}
            return {
                name: example(properties.get(name) or {}) for name in schema.get("required") or ()
            }
    return "Oslo"


def callable_tools(tools: Sequence[ToolSpec]) -> Iterator[tuple[ToolSpec, Mapping[str, Any]]]:
    """Yield the tools that can be called with simple arguments, each with them."""
    for tool in tools:
        arguments = example({**tool.input_schema, "type": "object"})
        try:
            jsonschema.validate(arguments, dict(tool.input_schema))
        except (jsonschema.ValidationError, jsonschema.SchemaError, RecursionError):
            continue
        yield tool, arguments


def ways_of(provider: str) -> tuple[str, ...]:
    """Return the ways in which a provider's models can get the tools."""
    return tuple(way for way in WAYS if way != "native" or provider != "openai")


def planned(
    tools: Sequence[ToolSpec], turns: int, draw: random.Random, each: bool = False
) -> list[Plan]:
    """Return what happens in each turn."""
    there = list(callable_tools(tools))
    index = ToolSearchIndex(tools)
    # A name that many servers have is not always found by its own words.
    targets = (
        one
        for one in draw.sample(there, len(there))
        if one[0] in index_hits(index, query_of(one[0]))
    )
    plans: list[Plan] = []
    tool, arguments = there[0]
    for number in range(1, turns + 1):
        searches = each or number <= 2 or number % 5 == 0
        if searches:
            tool, arguments = next(targets, (tool, arguments))
        plans.append(Plan(query_of(tool) if searches else None, tool, arguments))
    return plans


def query_of(tool: ToolSpec) -> str:
    """Return what the model searches for to find a tool."""
    return " ".join(f"{tool.name.replace('_', ' ')} {tool.description}".split()[:MOST_WORDS])


def index_hits(index: ToolSearchIndex, query: str) -> list[ToolSpec]:
    return [hit.tool for hit in index.search(query)]


async def conversation(
    provider: str, way: str, tools: Sequence[ToolSpec], plans: Sequence[Plan]
) -> list[list[Any]]:
    """Run a conversation and return the bodies of its requests, turn by turn."""
    player = Player(provider)
    with ScriptedHttp(player.reply) as server:
        base = f"{server.url}/v1" if provider != "anthropic" else server.url
        client = {
            "provider": provider,
            "base_url": base,
            "api_key": "sk-none",
            "native_deferral": True,
            "timeout": 600,
        }
        model = {"client": "here", "model": MODELS[provider]}
        config = Config.model_validate({"clients": {"here": client}, "models": {"m": model}})
        deferred = {"discovery": True, "defer_all": True, "delivery": LOOPS.get(way, way)}
        selection = Selection.model_validate({} if way == NOTHING else deferred)
        manager = ServerManager({}, in_process=dict(servers_of(tools)), cache_ttl=None)
        names = list(manager.statuses)
        for first in range(0, len(names), 20):
            # Hundreds at a time would take longer than a server may.
            await manager.connect(names[first : first + 20])
        async with McpToolChat(
            manager, ModelFactory(config), ChatSetup(selection=selection, system=SYSTEM)
        ) as chat:
            turns: list[Turn] = []
            bodies: list[list[Any]] = []
            for number, plan in enumerate(plans, 1):
                player.answers[:] = answers(provider, way, plan)
                player.bodies.clear()
                asked = [
                    UserMessage(
                        content=(
                            f"Question {number}: what can you tell me about {plan.tool.name} of"
                            " Oslo?"
                        )
                    )
                ]
                before = turns[-1] if turns else None
                history, options = Conversation(turns).messages, TurnOptions(stream=False)
                turns.append(await chat.run(asked, options, history=history, before=before))
                check(turns[-1], way)
                bodies.append(list(player.bodies))
    return bodies


def servers_of(tools: Sequence[ToolSpec]) -> Iterator[tuple[str, FastMCP[Any]]]:
    """Return in-memory servers with these tools."""
    by_server: dict[str, list[ToolSpec]] = {}
    for tool in tools:
        by_server.setdefault(tool.server, []).append(tool)
    for name, listed in by_server.items():
        server: FastMCP[Any] = FastMCP(name)
        for tool in listed:
            server.add_tool(
                Listed(
                    name=tool.name, description=tool.description, parameters=dict(tool.input_schema)
                )
            )
        yield name, server


def answers(provider: str, way: str, plan: Plan) -> list[Any]:
    """Return the model's answers in a turn."""
    name, arguments = plan.tool.wire_name, dict(plan.arguments)
    made = [(name, varied(arguments, number)) for number in range(plan.times)]
    match way:
        case "bridge":
            steps = [[(CALL_TOOL, {"name": name, "arguments": arguments})]]
        case "code":
            steps = [[(RUN_CODE, {"code": f"print({function(plan.tool, arguments)})"})]]
        case "program" | "program, repaired":
            code = program(plan)
            broken = (
                [[(RUN_CODE, {"code": code.replace("results[0]", "results[0][1]['no']")})]]
                if way == REPAIRED
                else []
            )
            steps = [*broken, [(RUN_CODE, {"code": code})]]
        case "call by call":
            steps = [[each] for each in made]
        case _:
            steps = [made]
    replies = [*(answer(provider, "", *each) for each in steps), answer(provider, ANSWER)]
    if plan.query is not None and way != NOTHING:
        replies.insert(0, answer(provider, "", (SEARCH_TOOLS, {"query": plan.query})))
    return replies


def varied(arguments: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return the arguments of the call with a number: the first text differs."""
    text = next((name for name, value in arguments.items() if isinstance(value, str)), None)
    return {
        **arguments,
        **({text: f"{arguments[text]} {number}"} if text is not None and number else {}),
    }


def function(tool: ToolSpec, arguments: Mapping[str, Any]) -> str:
    """Return a call of a tool in a program."""
    return f"{identifier(tool.wire_name)}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"


def program(plan: Plan) -> str:
    """Return a program that makes the calls of a turn, and prints what the answer needs of them."""
    text = next(name for name, value in plan.arguments.items() if isinstance(value, str))
    others = {name: value for name, value in plan.arguments.items() if name != text}
    called = function(plan.tool, others).removesuffix(")") + (", " if others else "")
    value = f'{text}="{plan.arguments[text]}" + (f" {{number}}" if number else ""))'
    return "\n".join(
        (
            "results = []",
            f"for number in range({plan.times}):",
            f"    results.append({called}{value})",
            "print(len(results), sum(len(result) for result in results), results[0][:80])",
        )
    )


def check(turn: Turn, way: str) -> None:
    """Say so if a turn did not go as planned, or if the engine does not see the request as the
    provider does.
    """
    failed = [call for call in with_nested(turn.tool_calls) if call.status != "ok"]
    if turn.status != "done" or len(failed) != (way == REPAIRED):
        why = turn.error or (failed[0].result[:200] if failed else "")
        print(f"# {way}: a turn did not go as planned: {why}", file=sys.stderr)
    if way in ("native", "bridge", "code", PROGRAM, REPAIRED) and turn.prefix_changes:
        print(f"# {way}: {turn.prefix_changes[0].cause} changed the prefix", file=sys.stderr)


def rendered(provider: str, body: Mapping[str, Any]) -> list[str]:
    """Return the parts of a request in the order in which the provider reads them, without the
    marks for its cache.
    """
    tools = body.get("tools") or ()
    if provider == "openai":
        return [plain(part) for part in (*tools, *body["messages"])]
    if provider != "anthropic":
        return [plain(part) for part in (*tools, *body["input"])]
    by_name = {tool["name"]: tool for tool in tools}
    parts: list[Any] = [tool for tool in tools if not tool.get("defer_loading")]
    parts += body.get("system", ())
    for message in body["messages"]:
        for block in message["content"]:
            if isinstance(content := block.get("content"), list):
                # A reference is expanded to the definition of its tool.
                names = [part.get("tool_name") for part in content]
                block = {
                    **block,
                    "content": [
                        by_name.get(name, part) for name, part in zip(names, content, strict=True)
                    ],
                }
            parts.append({"role": message["role"], **block})
    return [plain(part) for part in parts]


def plain(part: Mapping[str, Any]) -> str:
    """Return a part as JSON without its mark, and without what says that it is deferred."""
    if isinstance(content := part.get("content"), list):
        part = {**part, "content": [json.loads(plain(inner)) for inner in content]}
    sent = {
        name: value
        for name, value in part.items()
        if name not in ("cache_control", "defer_loading")
    }
    return json.dumps(sent, ensure_ascii=False, separators=(",", ":"))


tokens_of = lru_cache(maxsize=1_000_000)(estimate_tokens)


def added_up(provider: str, turns: Sequence[Sequence[Any]]) -> list[Sums]:
    """Return the sums after each turn."""
    sums, before, result = Sums(), [], []
    for bodies in turns:
        for body in bodies:
            parts = rendered(provider, body)
            pairs = enumerate(zip(before, parts, strict=False))
            same = next(
                (number for number, (old, new) in pairs if old != new), min(len(before), len(parts))
            )
            reused = sum(map(tokens_of, parts[:same]))
            sums = Sums(
                sums.requests + 1,
                sums.new + sum(map(tokens_of, parts[same:])),
                sums.reused + reused,
                sums.again + sum(map(tokens_of, before[same:])),
            )
            before = parts
        result.append(sums)
    return result


TITLES = {
    False: ["provider", "tools", "turns", *WAYS, f"again: {', '.join(WAYS[1:])}"],
    True: ["provider", "tools", "turns", "way", "requests", "reused", "in full", "again", "cost"],
}


def rows(
    provider: str,
    size: int,
    lengths: Sequence[int],
    sums: Mapping[str, Sequence[Sequence[Sums]]],
    whole: bool,
) -> Iterator[str]:
    """Yield a row of the table for each length, with `whole` for each way too; several draws as
    their mean.
    """
    for length in lengths:

        def mean(way: str, name: str, length: int = length) -> float:
            return statistics.mean(getattr(draw[length - 1], name) for draw in sums[way])

        begin = [provider, f"{size:,}", f"{length}"]
        if whole:
            for way in sums:
                cells = [
                    f"{mean(way, name):,.0f}"
                    for name in ("requests", "reused", "new", "again", "cost")
                ]
                yield row([*begin, way, *cells])
            continue
        cost = {way: mean(way, "cost") for way in sums}
        found = [way for way in WAYS[2:] if way in sums]
        shares = {
            way: f" ({cost[way] / cost[WAYS[1]]:.2f}, {cost[way] / cost[NOTHING]:.2f})"
            for way in found
        }
        cells = [f"{cost[way]:,.0f}{shares.get(way, '')}" if way in sums else "" for way in WAYS]
        yield row(
            [
                *begin,
                *cells,
                ", ".join(f"{mean(way, 'again'):,.0f}" for way in WAYS[1:] if way in sums),
            ]
        )


def row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


async def loops(
    catalogs: Sequence[Catalog], size: int, counts: Sequence[int], provider: str = "anthropic"
) -> Iterator[str]:
    """Return the rows of the second table: one turn, with a search and a number of calls of what it
    found.
    """
    tools = drawn(catalogs, size, random.Random(f"{size} 0"))
    simple = (
        (tool, arguments)
        for tool, arguments in callable_tools(tools)
        if set(map(type, arguments.values())) == {str}
    )
    index = ToolSearchIndex(tools)
    plan = next((one for one in simple if one[0] in index_hits(index, query_of(one[0]))), None)
    if plan is None:
        sys.exit(
            "No tool of these catalogs takes only texts. --data names a folder with catalogs that"
            " have schemas."
        )
    tool, arguments = plan
    lines = []
    for count in counts:
        cells = []
        for way in LOOPS:
            sums = added_up(
                provider,
                await conversation(
                    provider, way, tools, [Plan(query_of(tool), tool, arguments, count)]
                ),
            )
            cells.append(
                f"{sums[-1].requests} | {sums[-1].new + sums[-1].reused:,} | {sums[-1].cost:,.0f}"
            )
        lines.append(row([provider, f"{len(tools):,}", f"{count}", *cells]))
    return iter(lines)


Sizes = Mapping[tuple[str, int], Mapping[str, Sequence[Sequence[Sums]]]]
"""By provider and number of tools: for each way, and each draw, the sums after each turn."""


async def measured(
    catalogs: Sequence[Catalog],
    sizes: Sequence[int],
    turns: int,
    draws: int,
    each: bool = False,
    providers: Sequence[str] = tuple(MODELS),
) -> Sizes:
    """Run all conversations."""
    kinds = [(provider, size) for provider in providers for size in sizes]
    return {
        (provider, size): await drawn_sums(catalogs, provider, size, turns, draws, each)
        for provider, size in kinds
    }


async def drawn_sums(
    catalogs: Sequence[Catalog],
    provider: str,
    size: int,
    turns: int,
    draws: int,
    each: bool = False,
) -> dict[str, list[list[Sums]]]:
    """Run a conversation in each way, with each draw of tools."""
    sums: dict[str, list[list[Sums]]] = {way: [] for way in ways_of(provider)}
    for number in range(draws):
        draw = random.Random(f"{size} {number}")
        tools = drawn(catalogs, size, draw)
        plans = planned(tools, turns, draw, each)
        for way in sums:
            sums[way].append(added_up(provider, await conversation(provider, way, tools, plans)))
    return sums


def read(data: Path | None) -> list[Catalog]:
    """Return the catalogs of a folder, or the sample."""
    if data is None:
        return [Catalog(sample.TOOLS)]
    # Real servers; the other catalogs are lists of functions.
    return [load_catalog(data / f"{name}.catalog.jsonl") for name in ("many_servers", "livemcp")]


def figures(quick: bool) -> list[Figure]:
    """The cost of a conversation in each way; the peer is the same with every tool loaded."""
    catalogs = read(None if quick or not DATA.is_dir() else DATA)
    sizes, turns = ((20,), 1) if quick or not DATA.is_dir() else ((100, 500), 5)
    return [
        Figure(
            f"{provider}, {size} tools, {turns} turns, {way}",
            sums[way][0][-1].cost,
            "tokens",
            sums[NOTHING][0][-1].cost,
        )
        for (provider, size), sums in asyncio.run(measured(catalogs, sizes, turns, 1)).items()
        for way in WAYS[1:]
        if way in sums
    ]


def main(argv: Sequence[str]) -> None:
    """Read the arguments."""
    parser = parser_for(__doc__)
    parser.add_argument("--sizes", default="30,100,300,500,3000", help="numbers of tools")
    parser.add_argument("--turns", default="1,5,20", help="lengths of conversations")
    parser.add_argument("--providers", default=",".join(MODELS), help="only these")
    parser.add_argument(
        "--draws",
        type=int,
        default=1,
        help="conversations with other tools, of which the mean is shown",
    )
    parser.add_argument("--result", type=int, default=300, help="tokens of a tool's result")
    parser.add_argument("--each", action="store_true", help="a search in each turn")
    parser.add_argument(
        "--loops",
        default="",
        help="numbers of calls in a turn: another table, of ways to make them",
    )
    parser.add_argument(
        "--whole", action="store_true", help="what each way is billed, a row for each"
    )
    options = parser.parse_args(argv)
    catalogs = read(options.data)
    there = len({tool.wire_name for catalog in catalogs for tool in catalog})
    sizes = [size for size in map(int, options.sizes.split(",")) if size <= there] or [there]
    lengths = sorted(map(int, options.turns.split(",")))
    Listed.result = RESULT_LINE * max(1, options.result // estimate_tokens(RESULT_LINE))
    if options.loops:
        print(
            row(
                [
                    "provider",
                    "tools",
                    "calls",
                    *(f"{way}: requests | tokens | cost" for way in LOOPS),
                ]
            )
        )
        print(row(["---", *["--:"] * (2 + 3 * len(LOOPS))]))
        for line in asyncio.run(
            loops(catalogs, sizes[0], list(map(int, options.loops.split(","))))
        ):
            print(line)
        return
    print(row(TITLES[options.whole]))
    print(row(["---", *["--:"] * (len(TITLES[options.whole]) - 1)]))
    for (provider, size), sums in asyncio.run(
        measured(
            catalogs,
            sizes,
            max(lengths),
            options.draws,
            options.each,
            options.providers.split(","),
        )
    ).items():
        for line in rows(provider, size, lengths, sums, options.whole):
            print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
