"""Find the tool for whose definition a provider refuses a request.

OpenAI names it, Anthropic and Gemini give its place in the request, and llama.cpp only says that a
grammar failed to parse: then requests with half of the tools that are still suspected find it, at
most log2 of their number.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

MAX_SEARCHES = 8
"""After so many tools were found one by one, only those that the provider is known to take are
offered.
"""
_MAX_REASON = 300

_STATUSES = (None, 200, 400, 422, 500)
_NAMED = re.compile(
    r"invalid (?:schema|parameters?|definition) for (?:function|tool)\W{1,4}([\w.:-]{1,128})",
    re.IGNORECASE,
)
# OpenAI: tools[3].function.parameters. Gemini: tools[0].function_declarations[3].parameters.
# Anthropic: tools.3.custom.input_schema. Bedrock: toolConfig.tools.3.toolSpec.inputSchema.
# pydantic: ('body', 'tools', 3, 'function', …).
_PLACED = re.compile(
    r"\btools\W{0,4}?[\[.,]\s*(?P<place>\d{1,5})\W{1,4}(?:(?:function_declarations|functionDeclarations)\W{1,3}(?P<inner>\d{1,5})\W{1,4})?"
    r"(?P<path>(?:custom|function|toolSpec|input)?\W{0,5}(?:parameters|parameters_json_schema|parametersJsonSchema|input_?schema|name|"
    r"description)\b)",
    re.IGNORECASE,
)
_OF_SCHEMAS = re.compile(
    r"pars(?:e|ing) grammar|grammar pars|JSON schema conversion failed|unrecognized schema|pattern"
    r" must start with"
    r"|cannot unmarshal .{1,120}(?:tools?\b|ToolFunction|ToolProperty)"
    r"|invalid[_ ]json[_ ]schema|invalid_function_parameters"
    r"|(?:tool|function)s?\b.{0,60}\b(?:input_?)?schema|schema.{0,60}\b(?:tool|function)s?\b",
    re.IGNORECASE | re.DOTALL,
)
_OF_ANSWERS = re.compile(
    r"response_format|text\.format|responseSchema|response_json_schema", re.IGNORECASE
)
_LONGEST = re.compile(
    r"description\W.{0,20}string too long.{0,60}maximum length (\d{2,6})", re.IGNORECASE | re.DOTALL
)


@dataclass(frozen=True)
class ToolRefusal:
    """A provider's refusal of a tool's definition.

    Args:
        reason: Its words.
        name: The tool, or empty if the provider does not say which.
        longest_description: How many characters a description may have, if that is what it is
            about.
    """

    reason: str
    name: str = ""
    longest_description: int | None = None


def tool_refusal(
    status: int | None, text: str, sentence: str, sent: Sequence[str]
) -> ToolRefusal | None:
    """Read an error as the refusal of a tool's definition, or return None if it is about something
    else.

    Args:
        status: The answer's HTTP status, or None if it came within a stream.
        text: The answer's body.
        sentence: What it says, for the person.
        sent: The names of the tools that were sent, in the order of the request.
    """
    if status not in _STATUSES or not sent:
        return None
    reason = sentence[:_MAX_REASON]
    longest = _LONGEST.search(text)
    name = ""
    named, placed = _NAMED.search(text), _PLACED.search(text)
    if named and named[1] in sent:
        name = named[1]
    elif placed and not named:
        place = int(placed["inner"] or placed["place"])
        name = sent[place] if place < len(sent) else ""
        if not name:
            # A tool that the provider runs itself.
            return None
    if name or longest:
        return ToolRefusal(reason, name, int(longest[1]) if longest else None)
    if not _OF_SCHEMAS.search(text) or _OF_ANSWERS.search(text):
        return None
    quoted = [name for name in sent if name and _is_quoted(name, text)]
    return ToolRefusal(reason, quoted[0] if len(quoted) == 1 else "")


def _is_quoted(name: str, text: str) -> bool:
    return re.search(rf"['\"`]{re.escape(name)}\\?['\"`]", text) is not None


@dataclass
class Bisection:
    """The search for refused tools in one request, with requests that offer only some of them.

    Args:
        refuses: Asks whether the provider refuses these tools, or returns None if that cannot be
            told.

    Attributes:
        accepted: The largest set of tools that the provider was seen to take.
        given_up: Whether leaving out single tools does not help.
        unproven: The tool found last, if no request with it alone was refused.
    """

    refuses: Callable[[Sequence[str]], Awaitable[bool | None]]
    accepted: tuple[str, ...] = ()
    given_up: bool = False
    unproven: str = ""
    _searches: int = 0

    async def next(self, names: Sequence[str]) -> str | None:
        """Find a tool because of which these tools are refused together.

        Returns:
            The tool, or None if it cannot be found. If `given_up` is set then, single tools are not
            the reason, and only `accepted` can be sent.
        """
        given_up = self._searches >= MAX_SEARCHES
        if not given_up and self.unproven:
            given_up = not await self.refuses([self.unproven])
        if given_up:
            # A grammar can also be too large for all of the tools together.
            self.given_up = True
            return None
        self._searches += 1
        suspects, alone = list(names), False
        while len(suspects) > 1:
            half = suspects[: len(suspects) // 2]
            refused = await self.refuses(half)
            if refused is None:
                return None
            if refused:
                suspects, alone = half, len(half) == 1
            else:
                self.accepted = max(self.accepted, tuple(half), key=len)
                suspects = suspects[len(half) :]
        self.unproven = "" if alone else suspects[0]
        return suspects[0]
