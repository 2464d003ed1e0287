"""Views for what servers offer besides tools: resources, prompts and skills. And for accounts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from casual_mcp_nb.base.content import ContentPart, media_type_of
from casual_mcp_nb.base.mcp import (
    Account,
    Accounts,
    Completions,
    PromptMessages,
    Prompts,
    Resource,
    ResourceContents,
    Resources,
    ServerPrompt,
    Skill,
    SkillContents,
    SkillFile,
    Skills,
    Subscription,
    Subscriptions,
    is_json,
)
from casual_mcp_nb.conversation.view_calls import (
    ImageBudget,
    content_block,
    structured_blocks,
)
from casual_mcp_nb.display import words
from casual_mcp_nb.display.view import (
    Block,
    Cell,
    Column,
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
    pretty,
)
from casual_mcp_nb.display.words import first, prompt_code, read_code
from casual_mcp_nb.servers.views import clock, known_facts, or_none

_SUMMARY = 80
_RESOURCE_COLUMNS = columns("Resource", "Type", "Size #", "Description")
_SKILL_COLUMNS = columns("Skill", "Tokens #", "Files #", "What it is for")
_PROMPT_COLUMNS = columns("Prompt", "Arguments", "Description")
_SUBSCRIPTION_COLUMNS = columns("Resource", "Server", "Changes #", "Last change", "State")


def resources_view(resources: Resources, limits: DisplayLimits) -> View:
    """Show each server's resources. Templates are marked, with their parameters."""
    templates = sum(resource.is_template for resource in resources)
    note = words.count(len(resources) - templates, "resource")
    if templates:
        note += f", {words.count(templates, 'template')}"
    sections = _sections(resources.by_server, limits, _RESOURCE_COLUMNS, _resource_row)
    return _listing("resources", "Resources", resources, sections, note)


def prompts_view(prompts: Prompts, limits: DisplayLimits) -> View:
    """Show each server's prompts, with their arguments."""
    sections = _sections(prompts.by_server, limits, _PROMPT_COLUMNS, _prompt_row)
    return _listing("prompts", "Prompts", prompts, sections, words.count(len(prompts), "prompt"))


def _prompt_row(prompt: ServerPrompt) -> tuple[Cell, ...]:
    arguments = []
    for argument in prompt.arguments:
        if argument.required:
            arguments.append(argument.name)
        else:
            arguments.append(f"[{argument.name}]")
    description = first(prompt.description or prompt.title, _SUMMARY)
    return (Name(prompt.name), ", ".join(arguments), description)


def skills_view(skills: Skills, limits: DisplayLimits) -> View:
    """Show each server's skills, with the tokens that reading one takes."""
    sections = _sections(skills.by_server, limits, _SKILL_COLUMNS, _skill_row)
    return _listing("skills", "Skills", skills, sections, words.count(len(skills), "skill"))


def _skill_row(skill: Skill) -> tuple[Cell, ...]:
    files = ""
    if skill.files:
        files = f"{len(skill.files):,}"
    return (Name(skill.name), _tokens_of(skill), files, first(skill.description, _SUMMARY))


def _tokens_of(skill: Skill) -> str:
    if skill.tokens is None:
        return ""
    return f"≈ {skill.tokens:,}"


def skill_view(skill: Skill, limits: DisplayLimits) -> View:
    """Show one skill as a card, with its files."""
    facts = known_facts(
        ("Server", skill.server),
        ("URI", Name(skill.uri)),
        ("Tokens", _tokens_of(skill)),
        ("License", skill.license),
        ("Needs", skill.compatibility),
    )
    code = f'session.resources.skills.read("{skill.server}:{skill.name}")'
    blocks: list[Block] = [TextBlock(skill.description), facts]
    if skill.files:
        heads = columns("File", "Size #", "SHA-256")
        blocks.append(Table.of(heads, skill.files, _file_row, limits.rows))
    else:
        generated = "It is generated when it is read, so there is no digest to check."
        blocks.append(TextBlock(generated))
    return View("skill", skill.name, (*blocks, TextBlock(code, label="Read it", code=True)))


def _file_row(file: SkillFile) -> tuple[Cell, ...]:
    return (Name(file.path), words.size(file.size), Name(file.digest[7:19]))


def skill_contents_view(contents: SkillContents, limits: DisplayLimits) -> View:
    """Show a file of a skill, and whether its digest was checked."""
    checked = "no digest to check"
    if contents.changed:
        checked = "changed by the server since it was first listed, with its digest"
    elif contents.checked:
        checked = "digest checked"
    size, text = words.tokens(contents.tokens, "estimated"), contents.text
    if contents.data is not None:
        size = words.size(contents.size)
        text = f"{size} of binary data"
    blocks: list[Block] = [TextBlock(text, code=True, limit=limits.document)]
    if contents.others:
        others = words.listed(contents.others, limits.rows)
        blocks.append(KeyValues((("Other files", others),)))
    note = ", ".join([f"from {contents.server}", size, checked])
    return View("skill-contents", f"{contents.name}: {contents.path}", tuple(blocks), note=note)


def resource_view(resource: Resource, limits: DisplayLimits) -> View:
    """Show one resource as a card."""
    size, address = "", "URI"
    if resource.size is not None:
        size = words.size(resource.size)
    if resource.is_template:
        address = "Template"
    facts = known_facts(
        ("Server", resource.server),
        (address, Name(resource.uri)),
        ("Parameters", ", ".join(resource.parameters or ())),
        ("Type", resource.mime_type or ""),
        ("Size", size),
    )
    blocks: list[Block] = [facts]
    if resource.description:
        blocks.insert(0, TextBlock(resource.description))
    blocks.append(
        TextBlock(
            read_code(resource.uri, resource.server, resource.parameters or ()),
            label="Read it",
            code=True,
        )
    )
    return View("resource", resource.title or resource.name, tuple(blocks))


_NEEDED = {True: "required", False: "optional"}


def prompt_view(prompt: ServerPrompt, limits: DisplayLimits) -> View:
    """Show one prompt as a card."""
    blocks: list[Block] = []
    if prompt.description:
        blocks.append(TextBlock(prompt.description))
    rows: list[tuple[Cell, ...]] = []
    for argument in prompt.arguments:
        rows.append((Name(argument.name), _NEEDED[argument.required], argument.description))
    if rows:
        blocks.append(Table(columns("Argument", "", "Description"), tuple(rows)))
    else:
        blocks.append(TextBlock("No arguments."))
    code = prompt_code(prompt.server, prompt.name, [argument.name for argument in prompt.arguments])
    blocks.append(TextBlock(code, label="Get it", code=True))
    return View(
        "server-prompt",
        prompt.title or prompt.name,
        tuple(blocks),
        note=f"prompt of {prompt.server}",
    )


def contents_view(contents: ResourceContents, limits: DisplayLimits) -> View:
    """Show a resource's contents by type: text, JSON, a picture, or only type and size for other
    bytes.
    """
    images = ImageBudget(limits.images)
    blocks: list[Block] = []
    for part in contents.parts:
        blocks += _part_blocks(part, contents.server, limits, images)
    note = f"from {contents.server}"
    if contents.text:
        note += f", {words.tokens(contents.tokens, 'estimated')}"
    return View("contents", contents.uri, tuple(blocks) or (TextBlock("It is empty."),), note=note)


def prompt_messages_view(messages: PromptMessages, limits: DisplayLimits) -> View:
    """Show a prompt's messages, each with its role."""
    images = ImageBudget(limits.images)
    sections: list[Section] = []
    for message in messages.messages:
        blocks = _part_blocks(message.content, messages.server, limits, images)
        sections.append(Section(message.role, tuple(blocks)))
    note = ", ".join([f"from {messages.server}", words.tokens(messages.tokens, "estimated")])
    return View(
        "prompt-messages",
        messages.name,
        tuple(sections) or (TextBlock("It has no messages."),),
        note=note,
    )


def completions_view(completions: Completions, limits: DisplayLimits) -> View:
    """Show a server's suggestions for an argument."""
    note = ""
    if completions.total is not None:
        note = words.count(completions.total, "suggestion")
    blocks = [TextBlock("None.")]
    if completions.values:
        blocks = [TextBlock("\n".join(completions.values[: limits.rows]), code=True)]
    if len(completions) > limits.rows or completions.more:
        blocks.append(TextBlock("There are more."))
    return View("completions", "Suggestions", tuple(blocks), note=note)


def subscriptions_view(subscriptions: Subscriptions, limits: DisplayLimits) -> View:
    """Show the resources whose changes servers report."""
    items = subscriptions.subscriptions
    table = Table.of(_SUBSCRIPTION_COLUMNS, items, _subscription_row, limits.rows)
    return View("subscriptions", "Subscriptions", (or_none(table),))


def subscription_view(subscription: Subscription, limits: DisplayLimits) -> View:
    """Show one subscription."""
    return View(
        "subscriptions",
        "Subscription",
        (Table(_SUBSCRIPTION_COLUMNS, (_subscription_row(subscription),)),),
    )


def _subscription_row(subscription: Subscription) -> tuple[Cell, ...]:
    last, state = "", Status("✓ followed", "good")
    if subscription.last is not None:
        last = clock(subscription.last)
    if subscription.problem:
        state = Status(f"✗ {subscription.problem}", "bad")
    return (
        Name(subscription.uri),
        subscription.server,
        words.number(subscription.updates),
        last,
        state,
    )


def _sections(
    groups: Mapping[str, Sequence[Any]],
    limits: DisplayLimits,
    titles: tuple[Column, ...],
    row: Callable[[Any], tuple[Cell, ...]],
) -> list[Block]:
    """Show a table for each server's part of a list."""
    each = max(2, limits.rows // max(1, len(groups)))
    fold: Fold = "closed"
    if sum(map(len, groups.values())) <= limits.rows:
        fold = "open"
    visible = list(groups.items())[: limits.rows]
    blocks: list[Block] = []
    for server, group in visible:
        table = Table.of(titles, group, row, each)
        blocks.append(Section(server, (table,), note=f"{len(group):,}", fold=fold))
    if len(groups) > len(visible):
        blocks.append(Section(f"{words.count(len(groups) - len(visible), 'server')} more", ()))
    return blocks


def _resource_row(resource: Resource) -> tuple[Cell, ...]:
    kinds = []
    if resource.is_template:
        kinds.append("template")
    if resource.mime_type:
        kinds.append(resource.mime_type)
    size = ""
    if resource.size is not None:
        size = words.size(resource.size)
    description = first(resource.description or resource.title or resource.name, _SUMMARY)
    return (Name(resource.uri), " ".join(kinds), size, description)


def _listing(
    kind: str, title: str, offers: Resources | Prompts | Skills, sections: list[Block], note: str
) -> View:
    problems = [Line(Status(f"✗ {problem}", "bad")) for problem in offers.problems.values()]
    none = TextBlock(offers.not_listed or "None.")
    return View(kind, title, (*sections, *problems) or (none,), note=note)


def _part_blocks(
    part: ContentPart, server: str, limits: DisplayLimits, images: ImageBudget
) -> list[Block]:
    if part.data is not None:
        media_type = media_type_of(part.data)
        kind = "image" if media_type else part.kind
        return [content_block(kind, media_type or part.mime_type or "", part.data, server, images)]
    if part.kind not in ("text", "resource", "unknown"):
        text = part.text
        if part.uri:
            text += f": {part.uri}"
        return [TextBlock(text)]
    if is_json(part.mime_type):
        try:
            value = json.loads(part.text)
        except (ValueError, RecursionError):
            pass
        else:
            return [
                *structured_blocks(value),
                TextBlock(pretty(value), code=True, limit=limits.document),
            ]
    prose = (part.mime_type or "").partition(";")[0] == "text/markdown"
    return [TextBlock(part.text, code=not prose, prose=prose, limit=limits.document)]


def accounts_view(accounts: Accounts, limits: DisplayLimits) -> View:
    """Show the sign-ins that are remembered, never their tokens."""
    block: Block = TextBlock("No sign-in is remembered on this computer.")
    if accounts:
        heads = columns("Server", "Address", "Signed in at", "Scopes", "Expires")
        block = Table.of(heads, accounts, _account_row, limits.rows)
    return View("accounts", "Accounts", (block,), note=words.count(len(accounts), "sign-in"))


def _account_row(account: Account) -> tuple[Cell, ...]:
    scopes = " ".join(account.scopes)
    return (Name(account.server), account.address, account.issuer, scopes, _expiry(account))


def account_view(account: Account, limits: DisplayLimits) -> View:
    """Show one sign-in."""
    facts = known_facts(
        ("Address", account.address),
        ("Signed in at", account.issuer),
        ("Scopes", " ".join(account.scopes)),
        ("Expires", _expiry(account)),
    )
    return View("account", account.server, (facts,))


def _expiry(account: Account) -> str:
    if account.expires is None:
        return ""
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(account.expires))
    if account.renewable:
        when += ", renewed automatically"
    return when
