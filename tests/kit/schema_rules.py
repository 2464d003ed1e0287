"""What providers refuse in the schemas of tools, each with its own words: written apart from the
package's own table.

A server here refuses a whole request for one tool, as the real ones do, and counts its refusals.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from jsonschema import Draft202012Validator
from kit.provider import answer
from kit.scripted_http import Reply, Request, ScriptedHttp
from kit.streams import reply, streamed

Problem = Callable[[str, Mapping[str, Any]], str | None]
"""Takes a tool's name and schema, and gives what is wrong with it."""

_META = Draft202012Validator(Draft202012Validator.META_SCHEMA)
_LOOKS = re.compile(r"\(\?<?[=!]")


def parts(schema: Any, root: bool = True) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """Yield each schema within a schema, and whether it is the whole one.

    What is data is left out.
    """
    if isinstance(schema, Mapping):
        yield schema, root
        for word, value in schema.items():
            if word in ("properties", "patternProperties", "$defs", "definitions") and isinstance(
                value, Mapping
            ):
                for part in value.values():
                    yield from parts(part, False)
            elif word in ("anyOf", "oneOf", "allOf", "prefixItems") and isinstance(value, list):
                for part in value:
                    yield from parts(part, False)
            elif word in (
                "items",
                "not",
                "additionalProperties",
                "contains",
                "propertyNames",
                "if",
                "then",
                "else",
            ):
                yield from parts(value, False)


def meta(name: str, schema: Mapping[str, Any]) -> str | None:
    """What the meta-schema says, and Python about regular expressions."""
    error = next(iter(_META.iter_errors(schema)), None)
    if error is not None:
        return error.message[:200]
    for part, _ in parts(schema):
        if isinstance(pattern := part.get("pattern"), str):
            try:
                re.compile(pattern)
            except re.error:
                return f"{pattern!r} is not a 'regex'"
    return None


def _kinds(part: Mapping[str, Any]) -> list[str]:
    kind = part.get("type", [])
    return [kind] if isinstance(kind, str) else list(kind)


def openai(name: str, schema: Mapping[str, Any]) -> str | None:
    """OpenAI, schemas that are not strict."""
    if schema.get("type") != "object" or not schema.keys().isdisjoint(
        ("oneOf", "anyOf", "allOf", "enum", "not")
    ):
        return (
            "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at"
            " the top level"
        )
    for part, _ in parts(schema):
        if "array" in _kinds(part) and "items" not in part:
            return "array schema missing items"
        if isinstance(pattern := part.get("pattern"), str) and (
            _LOOKS.search(pattern) or r"\p{" in pattern
        ):
            return f"{pattern!r} is not a 'regex'"
    return meta(name, schema)


def strict_openai(name: str, schema: Mapping[str, Any]) -> str | None:
    """OpenAI, schemas that it enforces."""
    choices = 0
    for part, _ in parts(schema):
        if "object" in _kinds(part):
            if part.get("additionalProperties") is not False:
                return "'additionalProperties' is required to be supplied and to be false"
            if set(part.get("required", ())) != set(part.get("properties", ())):
                return (
                    "'required' is required to be supplied and to be an array including every key"
                    " in properties"
                )
        if isinstance(enum := part.get("enum"), list):
            choices += len(enum)
            if not enum or len({repr(value) for value in enum}) < len(enum):
                return "enum must have at least one value, each once"
            if "array" in _kinds(part):
                return "enum is not permitted on an array"
        pattern = part.get("pattern")
        if isinstance(pattern, str) and (
            _LOOKS.search(pattern) or re.search(r"\\[pP]\{|\\[1-9]", pattern)
        ):
            return "regex lookaround is not supported"
    return "too many enum values" if choices > 1_000 else openai(name, schema)


def anthropic(name: str, schema: Mapping[str, Any]) -> str | None:
    """Anthropic."""
    if not schema.keys().isdisjoint(("oneOf", "anyOf", "allOf")):
        return "input_schema does not support oneOf, allOf, or anyOf at the top level"
    if schema.get("type") != "object":
        return "input_schema.type: Field required"
    for part, _ in parts(schema):
        properties = part.get("properties")
        keys = properties if isinstance(properties, Mapping) else ()
        if any(not re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", key) for key in keys):
            return "Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'"
    return meta(name, schema) and "JSON schema is invalid. It must match JSON Schema draft 2020-12"


def gemini(name: str, schema: Mapping[str, Any]) -> str | None:
    """Gemini."""
    if schema.get("type") != "object":
        return "type: must be OBJECT"
    for part, _ in parts(schema):
        properties = part.get("properties")
        known = properties if isinstance(properties, Mapping) else {}
        if "$schema" in part:
            return "$schema: unknown name"
        if any(each not in known for each in part.get("required") or ()):
            return "required[0]: property is not defined"
        if "array" in _kinds(part) and "items" not in part:
            return "items: missing field"
        if any(not isinstance(value, str) for value in part.get("enum") or ()):
            return "enum: only allowed for STRING type"
    return meta(name, schema)


def llama(name: str, schema: Mapping[str, Any]) -> str | None:
    """llama.cpp, whose refusal names nothing."""
    for part, _ in parts(schema):
        pattern = part.get("pattern")
        if isinstance(pattern, str) and (
            not re.fullmatch(r"\^.*\$", pattern, re.DOTALL)
            or re.search(r"\(\?[^:]|\\[a-zA-Z]", pattern)
        ):
            return "pattern"
        if any(
            part.get(word, 0) > 2_000 for word in ("maxLength", "maxItems", "minLength", "minItems")
        ):
            return "repetitions"
    return meta(name, schema)


RULES: Mapping[str, Problem] = {
    "openai": llama,
    "openai-responses": openai,
    "anthropic": anthropic,
    "gemini": gemini,
    "ollama": meta,
}
"""By wire. A server that speaks OpenAI's chat completions at another address is llama.cpp here."""


def definitions_in(
    provider: str, body: Mapping[str, Any]
) -> list[tuple[str, Mapping[str, Any], bool]]:
    """The tools of a request in its order: name, schema, and whether it is strict."""
    found: list[tuple[str, Mapping[str, Any], bool]] = []
    for tool in body.get("tools") or ():
        if provider == "gemini":
            found += [
                (
                    each["name"],
                    each.get("parametersJsonSchema") or each["parameters_json_schema"],
                    False,
                )
                for each in tool["functionDeclarations"]
            ]
        elif provider == "anthropic":
            found.append((tool["name"], tool["input_schema"], False))
        elif provider == "openai-responses":
            found.append((tool["name"], tool["parameters"], tool["strict"]))
        else:
            found.append((tool["function"]["name"], tool["function"]["parameters"], False))
    return found


class SchemaStrict(ScriptedHttp):
    """A provider that refuses a request for the first of its tools that breaks a rule.

    Use it as a context manager.

    Args:
        provider: Whose wire it speaks.
        problem: A further rule.
        calls: The calls of its first answer; those after it are "done".
        together: How many tools it takes at a time, or 0 for any number.
        text: The text of its first answer.

    Attributes:
        refused: The names of the tools for which requests were refused, as they came.
        answered: The requests that were answered.
    """

    def __init__(
        self,
        provider: str,
        problem: Problem | None = None,
        calls: Sequence[tuple[str, Mapping[str, Any]]] = (),
        together: int = 0,
        text: str = "",
    ) -> None:
        super().__init__(self._reply)
        self.provider = provider
        self.refused: list[str] = []
        self.answered: list[Mapping[str, Any]] = []
        self._problem = problem
        self._calls = list(calls)
        self._together = together
        self._texts = [text] if text else []

    @property
    def config(self) -> dict[str, Any]:
        """A config whose model asks this server."""
        base = f"{self.url}/v1" if self.provider.startswith("openai") else self.url
        desk = {
            "provider": self.provider,
            "base_url": base,
            "api_key": "sk-not-a-real-key",
            "timeout": 60,
        }
        return {"clients": {"desk": desk}, "models": {"small": {"client": "desk", "model": "m-1"}}}

    def _reply(self, request: Request) -> Reply:
        if not isinstance(request.body, Mapping):
            return Reply(404, {})
        tools = definitions_in(self.provider, request.body)
        for place, (name, schema, strict) in enumerate(tools):
            rule = strict_openai if strict else RULES[self.provider]
            problem = rule(name, schema) or (self._problem and self._problem(name, schema))
            if problem:
                self.refused.append(name)
                return _refusal(self.provider, place, name, problem)
        if self._together and len(tools) > self._together:
            self.refused.append("")
            return _refusal(self.provider, 0, "", "too many rules")
        self.answered.append(request.body)
        # A request that only tries some tools has one short message.
        probes = "Say yes." in json.dumps(request.body)
        calls = [] if probes else self._calls
        said = "done"
        if not probes:
            self._calls = []
            said = self._texts.pop() if self._texts else said
        if request.streams and not probes:
            return reply(
                self.provider,
                streamed(
                    self.provider,
                    () if calls else (said,),
                    *((f"c{n}", name, json.dumps(each)) for n, (name, each) in enumerate(calls)),
                ),
            )
        return Reply(200, answer(self.provider, "" if calls else said, *calls))


def _refusal(provider: str, place: int, name: str, problem: str) -> Reply:
    if provider == "openai":
        text = "Failed to initialize samplers: failed to parse grammar"
        return Reply(
            400, {"error": {"code": 400, "message": text, "type": "invalid_request_error"}}
        )
    if provider == "openai-responses":
        message = f"Invalid schema for function '{name}': {problem}."
        error = {
            "message": message,
            "type": "invalid_request_error",
            "param": f"tools[{place}].parameters",
        }
        return Reply(400, {"error": {**error, "code": "invalid_function_parameters"}})
    if provider == "anthropic":
        message = f"tools.{place}.custom.input_schema: {problem}"
        return Reply(
            400, {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
        )
    if provider == "gemini":
        message = f"* GenerateContentRequest.tools[0].function_declarations[{place}].parameters.{problem}\n"
        return Reply(
            400, {"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}
        )
    message = (
        "json: cannot unmarshal array into Go struct field"
        " ChatRequest.tools.function.parameters.properties of type map"
    )
    return Reply(400, {"error": message})
