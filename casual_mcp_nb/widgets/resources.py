"""The state behind the tab with resources, prompts and skills: listings, contents and attachments
for the next message.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any, Literal

from casual_mcp_nb.base.content import ContentPart
from casual_mcp_nb.base.mcp import (
    SKILL_FILE,
    PromptMessages,
    Prompts,
    Resource,
    ResourceContents,
    Resources,
    ServerPrompt,
    Skill,
    SkillContents,
    Skills,
)
from casual_mcp_nb.display import words
from casual_mcp_nb.display.words import clean, cut, first, prompt_code, read_code
from casual_mcp_nb.errors import CasualMcpError
from casual_mcp_nb.views import mimebundle
from casual_mcp_nb.widgets._rows import MAX_NAME, MAX_SUMMARY
from casual_mcp_nb.widgets.base import HasParts, State, command

MAX_SHOWN = 300
"""How many resources and prompts a list has. A filter finds the others."""
_MAX_DESCRIPTION = 2_000

Kind = Literal["resource", "prompt", "skill"]


class ResourcesState(State):
    """Servers' listings once somebody looks, contents, and the attachments for a panel's next
    message.
    """

    def __init__(self, session: HasParts) -> None:
        super().__init__(session)
        self._service = session.parts.resource_service
        self._resources, self._prompts, self._skills = Resources(), Prompts(), Skills()
        self._updating = False
        self._update_again = False
        self._version = 0
        self._looked = False
        self.follow(session.parts.observers.changes.add(self._on_change))

    def snapshot(self) -> dict[str, Any]:
        """Count resources, prompts and skills, with followed ones and the next message's
        attachments.
        """
        followed = {}
        for each in self._service.subscriptions:
            row = {"updates": each.updates, "problem": each.problem or None}
            followed[f"{each.server} {each.uri}"] = row
        return {
            "version": self._version,
            "resources": len(self._resources),
            "prompts": len(self._prompts),
            "skills": len(self._skills),
            "followed": followed,
            "attached": len(self._service.pending),
        }

    @command
    async def offers(self, query: str = "") -> dict[str, Any]:
        """Find the rows whose server, name, title, URI or description contains all query words.

        The first time, the connected servers list theirs. From then on, changes are followed.

        Returns:
            `rows`, grouped by server; `total`, how many there are; `problems`, for servers that
            could not list theirs.
        """
        if not self._looked:
            self._looked = True
            await self._update()
        terms = query[:1_000].casefold().split()
        # The servers in the order in which they come first, each with what matches.
        groups: dict[str, list[dict[str, Any]]] = {}
        for offer in (*self._skills, *self._resources, *self._prompts):
            group = groups.setdefault(offer.server, [])
            if _matches(offer, terms):
                group.append(_row(offer))
        rows = list(chain.from_iterable(groups.values()))
        problems: dict[str, None] = {}
        for listing in (self._resources, self._prompts, self._skills):
            problems |= dict.fromkeys(listing.problems.values())
        return {
            "rows": rows[:MAX_SHOWN],
            "total": len(rows),
            "problems": [cut(clean(text), 500) for text in problems],
        }

    @command
    async def read(self, kind: Kind, server: str, name: str, values: dict[str, str]) -> str:
        """Read a resource or fill in a prompt, and return it as HTML.

        In Python: `resources.read` and `prompts.get`.

        Args:
            kind: Its kind.
            server: Its server.
            name: A resource's URI, or a prompt's name.
            values: Values for its parameters or arguments. Empty ones are not sent for a prompt.
        """
        contents = await self._contents(kind, server, name, values)
        html: str = (await asyncio.to_thread(mimebundle, contents))["text/html"]
        return html

    @command
    async def attach(self, kind: Kind, server: str, name: str, values: dict[str, str]) -> None:
        """Read it for the next message sent in a panel. In Python: `session.chat(…, attach=…)`."""
        contents = await self._contents(kind, server, name, values)
        if isinstance(contents, SkillContents):
            uri = f"{contents.path} of skill {contents.name}"
            contents = ResourceContents(server, uri, (ContentPart("text", contents.text),))
        self._service.add_pending(contents)

    @command
    async def complete(
        self, kind: Kind, server: str, name: str, argument: str, values: dict[str, str]
    ) -> list[str]:
        """Ask the server to suggest values for an argument, given the others so far.

        In Python: `session.prompts.complete`.
        """
        begun = values.get(argument, "")
        if kind == "skill":
            return self._files_of_skill(server, name, begun)
        others = _filled(values)
        others.pop(argument, None)
        offer = f"{server}:{name}" if kind == "prompt" else name
        with suppress(CasualMcpError):
            completions = await self._service.complete(offer, argument, begun, others)
            return [first(value, MAX_NAME) for value in completions if len(value) <= MAX_NAME]
        return []

    def _files_of_skill(self, server: str, name: str, begun: str) -> list[str]:
        paths: list[str] = []
        for skill in self._skills:
            if (skill.server, skill.name) == (server, name):
                paths += [file.path for file in skill.files if file.path.startswith(begun)]
        return paths[:MAX_SHOWN]

    @command
    def code_of(self, kind: Kind, server: str, name: str, values: dict[str, str]) -> str:
        """Write the same as a line of Python."""
        given = _filled(values)
        if kind == "skill":
            arguments = [json.dumps(each) for each in (f"{server}:{name}", *given.values())]
            return f"session.resources.skills.read({', '.join(arguments)})"
        if kind == "prompt":
            return prompt_code(server, name, given)
        return read_code(name, server, given)

    @command
    async def set_followed(self, server: str, uri: str, on: bool) -> None:
        """Have the server report a resource's changes, or not.

        In Python: `resources.subscribe` and `unsubscribe`.
        """
        await self._service.follow(uri, server, on=on)

    async def _contents(
        self, kind: Kind, server: str, name: str, values: Mapping[str, str]
    ) -> ResourceContents | PromptMessages | SkillContents:
        if kind == "skill":
            return await self._service.read_skill(
                f"{server}:{name}", values.get("file") or SKILL_FILE
            )
        if kind == "prompt":
            return await self._service.prompt(f"{server}:{name}", _filled(values))
        return await self._service.read(name, server, values)

    def _on_change(self) -> None:
        self.changed()
        if self._looked:
            self.parts.engine.submit(self._update())

    async def _update(self) -> None:
        """Update the lists that have changed. Servers that are not connected are not waited for."""
        self._update_again = self._updating
        if self._updating:
            return
        self._updating = True
        try:
            # A closed session still shows what was known.
            with suppress(CasualMcpError):
                resources, prompts = await self._service.list_connected()
                skills = await self._service.list_connected_skills()
                self._keep(_without_skills(resources, skills), prompts, skills)
        finally:
            self._updating = False
        self.changed()
        if self._update_again:
            await self._update()

    def _keep(self, resources: Resources, prompts: Prompts, skills: Skills) -> None:
        before = tuple(self._resources), tuple(self._prompts), tuple(self._skills)
        if (tuple(resources), tuple(prompts), tuple(skills)) != before:
            self._version += 1
        self._resources, self._prompts, self._skills = resources, prompts, skills


def _without_skills(resources: Resources, skills: Skills) -> Resources:
    """Leave out the files of skills: they are read as skills, which checks them."""
    owners = {skill.server for skill in skills}
    others = []
    for each in resources:
        if each.server not in owners or not each.uri.startswith("skill:"):
            others.append(each)
    return Resources(tuple(others), resources.problems)


def _matches(offer: Resource | ServerPrompt | Skill, terms: Iterable[str]) -> bool:
    text = f"{offer.server} {offer.name} {offer.description}"
    if not isinstance(offer, Skill):
        text += f" {offer.title}"
    if not isinstance(offer, ServerPrompt):
        text += f" {offer.uri}"
    if isinstance(offer, Resource):
        text += f" {offer.mime_type or ''}"
    text = text.casefold()
    return all(term in text for term in terms)


def _row(offer: Resource | ServerPrompt | Skill) -> dict[str, Any]:
    if isinstance(offer, Skill):
        return _skill_row(offer)
    row: dict[str, Any] = {
        "server": offer.server,
        "title": first(offer.title or offer.name, MAX_NAME),
        "summary": first(offer.description, MAX_SUMMARY),
        "description": cut(clean(offer.description), _MAX_DESCRIPTION),
    }
    if isinstance(offer, ServerPrompt):
        return {**row, **_prompt_fields(offer)}
    return {**row, **_resource_fields(offer)}


def _skill_row(skill: Skill) -> dict[str, Any]:
    about = []
    if skill.tokens is not None:
        about.append(f"≈ {skill.tokens:,} tokens")
    if skill.files:
        about.append(words.count(len(skill.files), "file"))
    return {
        "server": skill.server,
        "name": skill.name,
        "title": skill.name,
        "kind": "skill",
        "summary": first(skill.description, MAX_SUMMARY),
        "description": cut(clean(skill.description), _MAX_DESCRIPTION),
        "about": " · ".join(about),
        "fields": [{"name": "file", "description": f"default {SKILL_FILE}", "required": False}],
    }


def _prompt_fields(prompt: ServerPrompt) -> dict[str, Any]:
    fields = []
    for argument in prompt.arguments:
        field = {
            "name": argument.name,
            "description": first(argument.description, MAX_SUMMARY),
            "required": argument.required,
        }
        fields.append(field)
    return {"name": prompt.name, "kind": "prompt", "fields": fields}


def _resource_fields(resource: Resource) -> dict[str, Any]:
    about = []
    mime_type = first(resource.mime_type or "", MAX_NAME)
    if mime_type:
        about.append(mime_type)
    if resource.size is not None:
        about.append(words.size(resource.size))
    fields = []
    for name in resource.parameters or ():
        fields.append({"name": name, "description": "", "required": True})
    return {
        "name": resource.uri,
        "kind": "resource",
        "template": resource.is_template,
        "about": " · ".join(about),
        "fields": fields,
    }


def _filled(values: Mapping[str, str]) -> dict[str, str]:
    """Copy the values that the person gave."""
    return {name: value for name, value in values.items() if value}
