"""Views of resources and prompts: lists, contents, messages, suggestions, subscriptions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.calls import ImageBudget, content_block
from casual_mcp_nb.display.schema import pretty
from casual_mcp_nb.display.structured import structured_blocks
from casual_mcp_nb.display.text import first
from casual_mcp_nb.display.view import (
    Block,
    Cell,
    DisplayLimits,
    Fold,
    KeyValues,
    Line,
    Name,
    Section,
    Status,
    Table,
    TextBlock,
    View,
    columns,
)
from casual_mcp_nb.types.content import ContentPart
from casual_mcp_nb.types.image import media_type_of
from casual_mcp_nb.types.python_code import prompt_code, read_code
from casual_mcp_nb.types.resource import (
    Completions,
    PromptArgument,
    PromptMessages,
    Prompts,
    Resource,
    ResourceContents,
    Resources,
    ServerPrompt,
    Subscription,
    Subscriptions,
    is_json,
)

_SUMMARY = 80
_RESOURCE_COLUMNS = columns("Resource", "Type", "Size #", "Description")
_PROMPT_COLUMNS = columns("Prompt", "Arguments", "Description")
_SUBSCRIPTION_COLUMNS = columns("Resource", "Server", "Changes #", "Last change", "State")


def resources_view(resources: Resources, limits: DisplayLimits) -> View:
    """Show the resources of each server; templates are marked, with their parameters."""
    templates = sum(resource.is_template for resource in resources)
    counts = [words.count(len(resources) - templates, "resource"), *([words.count(templates, "template")] if templates else [])]
    sections = _sections(resources.by_server, limits, lambda group, rows: _resource_table(group[:rows], len(group)))
    return View(
        "resources", "Resources", (*sections, *_problems(resources.problems)) or _none(resources), note=", ".join(counts)
    )


def prompts_view(prompts: Prompts, limits: DisplayLimits) -> View:
    """Show the prompts of each server, with their arguments."""

    def table(group: Sequence[ServerPrompt], rows: int) -> Table:
        cells = tuple(
            (Name(prompt.name), _arguments(prompt.arguments), first(prompt.description or prompt.title, _SUMMARY))
            for prompt in group[:rows]
        )
        return Table(_PROMPT_COLUMNS, cells, len(group) - len(cells))

    sections = _sections(prompts.by_server, limits, table)
    return View(
        "prompts",
        "Prompts",
        (*sections, *_problems(prompts.problems)) or _none(prompts),
        note=words.count(len(prompts), "prompt"),
    )


def resource_view(resource: Resource, limits: DisplayLimits) -> View:
    """Show one resource as a card."""
    facts: list[tuple[str, Cell]] = [
        ("Server", resource.server),
        ("Template" if resource.is_template else "URI", Name(resource.uri)),
    ]
    if resource.parameters:
        facts.append(("Parameters", ", ".join(resource.parameters)))
    facts += [("Type", resource.mime_type)] if resource.mime_type else []
    facts += [("Size", words.size(resource.size))] if resource.size is not None else []
    blocks: list[Block] = [KeyValues(tuple(facts))]
    if resource.description:
        blocks.insert(0, TextBlock(resource.description))
    blocks.append(TextBlock(read_code(resource.uri, resource.server, resource.parameters or ()), label="Read it", code=True))
    return View("resource", resource.title or resource.name, tuple(blocks))


def prompt_view(prompt: ServerPrompt, limits: DisplayLimits) -> View:
    """Show one prompt as a card."""
    rows = tuple(
        (Name(argument.name), "required" if argument.required else "optional", argument.description)
        for argument in prompt.arguments
    )
    table = Table(columns("Argument", "", "Description"), rows)
    blocks: list[Block] = [TextBlock(prompt.description)] if prompt.description else []
    blocks.append(table if rows else TextBlock("No arguments."))
    code = prompt_code(prompt.server, prompt.name, [argument.name for argument in prompt.arguments])
    blocks.append(TextBlock(code, label="Get it", code=True))
    return View("server-prompt", prompt.title or prompt.name, tuple(blocks), note=f"prompt of {prompt.server}")


def contents_view(contents: ResourceContents, limits: DisplayLimits) -> View:
    """Show the contents of a resource by their type: text, JSON, a picture; of other bytes only type and size."""
    images = ImageBudget(limits.images)
    blocks = [block for part in contents.parts for block in _part_blocks(part, contents.server, limits, images)]
    size = words.tokens(contents.tokens, "estimated") if contents.text else ""
    note = ", ".join(filter(None, [f"from {contents.server}", size]))
    return View("contents", contents.uri, tuple(blocks) or (TextBlock("It is empty."),), note=note)


def prompt_messages_view(messages: PromptMessages, limits: DisplayLimits) -> View:
    """Show the messages of a prompt, each with its role."""
    images = ImageBudget(limits.images)
    sections = tuple(
        Section(message.role, tuple(_part_blocks(message.content, messages.server, limits, images)))
        for message in messages.messages
    )
    note = ", ".join([f"from {messages.server}", words.tokens(messages.tokens, "estimated")])
    return View("prompt-messages", messages.name, sections or (TextBlock("It has no messages."),), note=note)


def completions_view(completions: Completions, limits: DisplayLimits) -> View:
    """Show a server's suggestions for an argument."""
    note = words.count(completions.total, "suggestion") if completions.total is not None else ""
    text = "\n".join(completions.values[: limits.rows])
    more = len(completions) > limits.rows or completions.more
    blocks = [TextBlock(text, code=True) if text else TextBlock("None."), *([TextBlock("There are more.")] if more else [])]
    return View("completions", "Suggestions", tuple(blocks), note=note)


def subscriptions_view(subscriptions: Subscriptions, limits: DisplayLimits) -> View:
    """Show the resources whose changes servers report."""
    rows = tuple(map(_subscription_row, subscriptions.subscriptions[: limits.rows]))
    table = Table(_SUBSCRIPTION_COLUMNS, rows, len(subscriptions) - len(rows))
    return View("subscriptions", "Subscriptions", (table,) if rows else _none())


def subscription_view(subscription: Subscription, limits: DisplayLimits) -> View:
    """Show one subscription."""
    return View("subscriptions", "Subscription", (Table(_SUBSCRIPTION_COLUMNS, (_subscription_row(subscription),)),))


def _subscription_row(subscription: Subscription) -> tuple[Cell, ...]:
    last = time.strftime("%H:%M:%S", time.localtime(subscription.last)) if subscription.last is not None else ""
    state = Status(f"✗ {subscription.problem}", "bad") if subscription.problem else Status("✓ followed", "good")
    return (Name(subscription.uri), subscription.server, words.number(subscription.updates), last, state)


def _sections(groups: Mapping[str, Sequence[Any]], limits: DisplayLimits, table: Callable[[Any, int], Table]) -> list[Block]:
    each = max(2, limits.rows // max(1, len(groups)))
    fold: Fold = "open" if sum(map(len, groups.values())) <= limits.rows else "closed"
    visible = list(groups.items())[: limits.rows]
    blocks: list[Block] = [
        Section(server, (table(group, each),), note=f"{len(group):,}", fold=fold) for server, group in visible
    ]
    if len(groups) > len(visible):
        blocks.append(Section(f"{words.count(len(groups) - len(visible), 'server')} more", ()))
    return blocks


def _resource_table(group: Sequence[Resource], count: int) -> Table:
    rows = tuple(
        (
            Name(resource.uri),
            " ".join(filter(None, ["template" if resource.is_template else "", resource.mime_type or ""])),
            words.size(resource.size) if resource.size is not None else "",
            first(resource.description or resource.title or resource.name, _SUMMARY),
        )
        for resource in group
    )
    return Table(_RESOURCE_COLUMNS, rows, count - len(rows))


def _arguments(arguments: Sequence[PromptArgument]) -> str:
    return ", ".join(argument.name if argument.required else f"[{argument.name}]" for argument in arguments)


def _problems(problems: Mapping[str, str]) -> list[Block]:
    return [Line(Status(f"✗ {problem}", "bad")) for problem in problems.values()]


def _none(offers: Resources | Prompts | None = None) -> tuple[Block, ...]:
    return (TextBlock("None." if offers is None else offers.not_listed or "None."),)


def _part_blocks(part: ContentPart, server: str, limits: DisplayLimits, images: ImageBudget) -> list[Block]:
    if part.data is not None:
        media_type = media_type_of(part.data)
        kind = "image" if media_type else part.kind
        return [content_block(kind, media_type or part.mime_type or "", part.data, server, images)]
    if part.kind not in ("text", "resource", "unknown"):
        return [TextBlock(part.text if not part.uri else f"{part.text}: {part.uri}")]
    if is_json(part.mime_type):
        try:
            value = json.loads(part.text)
        except (ValueError, RecursionError):
            pass
        else:
            return [*structured_blocks(value), TextBlock(pretty(value), code=True, limit=limits.document)]
    prose = (part.mime_type or "").partition(";")[0] == "text/markdown"
    return [TextBlock(part.text, code=not prose, prose=prose, limit=limits.document)]
