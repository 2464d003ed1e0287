"""The door for tools: every definition passes it on its way to a provider.

One tool's schema can make a provider refuse a whole request, and with it every turn. So a
definition is first mended, see `casual_mcp_nb.base.mend`, then reduced to what the provider takes
(`DIALECTS`): constraints that it refuses become words in the description, property names that it
refuses get others, which `real_arguments` maps back. A tool whose meaning would not survive is left
out. The tool itself keeps its schema: displays show that one, and arguments are checked against it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from types import MappingProxyType
from typing import Any

from casual_mcp_nb.base.dialects import Dialect, Patterns
from casual_mcp_nb.base.iterables import all_are, kept, of_type
from casual_mcp_nb.base.mend import (
    MAX_CHANGES,
    Mender,
    compiles,
    described,
    is_plain,
    pattern_words,
)
from casual_mcp_nb.base.schema import (
    CHOICE_KEYWORDS,
    LIST_KEYWORDS,
    MAP_KEYWORDS,
    SCHEMA_KEYWORDS,
    Schema,
    SchemaReader,
    lookup,
)

_DEEPEST = 150
_MAX_WORDS = 400
_MAX_OPTIONS = 12
_RULES = ("not", "if", "then", "else", "enum", "const", "dependentSchemas")
_AT_TOP = frozenset((*CHOICE_KEYWORDS, *_RULES, "$ref"))
_BOUNDS = {
    "minLength": "At least {} characters",
    "maxLength": "At most {} characters",
    "minItems": "At least {} items",
    "maxItems": "At most {} items",
}
NO_NAMES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Admission:
    """What becomes of one definition at the door.

    Args:
        definition: What is sent: the definition itself where nothing had to change, or None if the
            tool is left out.
        changes: What was changed, in words.
        renamed: The real names of properties, by the names that are sent.
        reason: Why the tool is left out, or empty.
    """

    definition: Mapping[str, Any] | None
    changes: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=lambda: NO_NAMES)
    reason: str = ""


class _Unusable(Exception):
    """A schema whose meaning would not survive."""


_MAX_ADMITTED = 50_000
_admitted: dict[str, dict[int, tuple[Mapping[str, Any], Admission]]] = {}
"""By dialect and the id of a definition.

The definition is kept with it, so that its id stays its own.
"""


def known_admission(definition: Mapping[str, Any], dialect: Dialect) -> Admission | None:
    """Look up what became of a definition, or None where it has not been at the door."""
    known = _admitted.setdefault(dialect.title, {}).get(id(definition))
    return known[1] if known is not None and known[0] is definition else None


def admit(definition: Mapping[str, Any], dialect: Dialect) -> Admission:
    """Mend and reduce a definition with `name`, `description` and `parameters`.

    Done once for each definition and dialect.

    It takes time that grows with the schema: not for an event loop's thread, unless
    `known_admission` has it.
    """
    known = known_admission(definition, dialect)
    if known is not None:
        return known
    admission, table = _admission(definition, dialect), _admitted[dialect.title]
    if len(table) >= _MAX_ADMITTED:
        table.clear()
    table[id(definition)] = definition, admission
    return admission


def _admission(definition: Mapping[str, Any], dialect: Dialect) -> Admission:
    parameters = definition.get("parameters")
    if not isinstance(parameters, Mapping) or _is_simple(parameters, dialect):
        return Admission(definition)
    mender = Mender()
    mended = mender.mend(parameters)
    reducer = _Reducer(dialect)
    try:
        reduced, words = reducer.whole(mended)
    except _Unusable as unusable:
        return Admission(None, tuple(mender.changes), reason=str(unusable))
    except RecursionError:
        return Admission(
            None, tuple(mender.changes), reason="its input schema is nested too deeply"
        )
    if reduced is parameters and not words:
        return Admission(definition)
    sent = {
        **definition,
        "parameters": reduced,
        "description": described(definition.get("description"), *words),
    }
    changes = [*mender.changes, *reducer.changes][:MAX_CHANGES]
    real = {sent_name: name for name, sent_name in reducer.renamed.items()}
    return Admission(sent, tuple(changes), real or NO_NAMES)


_SIMPLE = frozenset({"type", "properties", "required", "additionalProperties"})


def _is_simple(parameters: Schema, dialect: Dialect) -> bool:
    """Check quickly whether a schema has nothing but plain properties, as many have."""
    properties, required = parameters.get("properties"), parameters.get("required", [])
    if not (
        parameters.keys() <= _SIMPLE
        and parameters.get("type") == "object"
        and isinstance(properties, Mapping)
    ):
        return False
    if (
        not isinstance(parameters.get("additionalProperties", False), bool)
        or type(required) is not list
    ):
        return False
    texts = of_type(required, str)
    if len(set(texts)) != len(required) or not properties.keys() >= set(texts):
        return False
    if dialect.keys is not None and not all(map(dialect.keys.fullmatch, properties)):
        return False
    return all(map(is_plain, properties.values()))


def real_arguments(arguments: Any, renamed: Mapping[str, str]) -> Any:
    """Give the properties in a call's arguments their real names."""
    if isinstance(arguments, dict):
        return {
            renamed.get(name, name): real_arguments(value, renamed)
            for name, value in arguments.items()
        }
    if isinstance(arguments, list):
        return [real_arguments(value, renamed) for value in arguments]
    return arguments


class _Reducer:
    """Reduces one mended schema to a dialect. Whatever needs no change stays the same object."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.changes: list[str] = []
        self.renamed: dict[str, str] = {}
        self._root: Schema = {}
        self._taken: set[str] = set()

    def whole(self, schema: Schema) -> tuple[Schema, list[str]]:
        """Reduce a tool's whole schema. The words belong in the tool's description."""
        self._root = schema
        words: list[str] = []
        if not self.dialect.choice_at_top and not _AT_TOP.isdisjoint(schema):
            schema, words = _flattened(schema, schema, 0)
            self.changes.append("choices at the top are merged into one object")
        kinds = SchemaReader(schema).types
        if kinds and "object" not in kinds:
            raise _Unusable(
                f"its arguments are of type {', '.join(kinds)[:100]}, and only an object can be"
                " sent"
            )
        if schema.get("type") != "object" or not isinstance(schema.get("properties"), Mapping):
            schema = {**schema, "type": "object", "properties": schema.get("properties") or {}}
        return self._part(schema, "", 0), words

    def _note(self, path: str, text: str) -> None:
        if len(self.changes) < MAX_CHANGES:
            self.changes.append(f"{path}: {text}" if path else text)

    def _part(self, schema: Any, path: str, depth: int) -> Any:
        """Reduce a schema within the whole."""
        if isinstance(schema, bool):
            return {} if schema else {"not": {}}
        if not isinstance(schema, Mapping) or depth > _DEEPEST or is_plain(schema):
            return schema
        new = dict(schema)
        words: list[str] = []
        self._parts_of(new, path, depth)
        self._names(new, path)
        self._array(new, path, words)
        self._pattern(new, path, words)
        self._values(new, path, words)
        if not self.dialect.schema_word and "$schema" in new:
            del new["$schema"]
        if words:
            new["description"] = described(new.get("description"), *words)
        return kept(schema, new)

    def _parts_of(self, new: dict[str, Any], path: str, depth: int) -> None:
        for word in MAP_KEYWORDS:
            parts = new.get(word)
            if isinstance(parts, Mapping):
                reduced = {}
                for name, part in parts.items():
                    here = f"{path}.{name}" if path else str(name)
                    reduced[name] = self._part(part, here, depth + 1)
                new[word] = kept(parts, reduced)
        for word in LIST_KEYWORDS:
            options = new.get(word)
            if isinstance(options, list):
                fewer = [self._part(option, path, depth + 1) for option in options]
                if word in ("anyOf", "oneOf"):
                    # Zod writes one that nothing fits for every optional property.
                    fewer = [option for option in fewer if not _is_never(option)] or fewer
                new[word] = kept(options, fewer)
        for word in SCHEMA_KEYWORDS:
            part = new.get(word)
            if isinstance(part, Mapping) or (word == "items" and isinstance(part, bool)):
                new[word] = self._part(part, f"{path}[]" if word == "items" else path, depth + 1)

    def _names(self, new: dict[str, Any], path: str) -> None:
        """Rename the properties whose names are refused, leave out those that nothing fits, list
        those that are required.
        """
        required = new.get("required")
        listed = required if isinstance(required, list) else []
        given, keys = _properties(new), self.dialect.keys
        properties: dict[str, Any] = {}
        for name, part in given.items():
            if name in listed or not _is_never(part):
                properties[name] = part
        missing = [name for name in listed if name not in properties]
        if missing and not self.dialect.unlisted_required:
            for name in missing:
                properties[name] = {}
            self._note(path, f"{', '.join(missing)[:100]} is required, so it is listed")
        sent: dict[str, str] = {}
        named: dict[str, Any] = {}
        for name, part in properties.items():
            if keys is not None and not keys.fullmatch(name):
                sent[name] = self._sent_name(name)
                part = _saying(part, name)
                self._note(path, f"property {name[:80]!r} is sent as {sent[name]!r}")
            named[sent.get(name, name)] = part
        if given or named:
            new["properties"] = kept(given, named)
        if sent and listed:
            new["required"] = [sent.get(name, name) for name in listed]
        dependent = new.get("dependentRequired")
        if sent and isinstance(dependent, Mapping):
            renamed: dict[Any, Any] = {}
            for name, names in dependent.items():
                renamed[sent.get(name, name)] = [sent.get(each, each) for each in names]
            new["dependentRequired"] = renamed

    def _sent_name(self, name: str) -> str:
        """Choose the name that is sent for a property: no other property of the whole schema has
        it.
        """
        if name in self.renamed:
            return self.renamed[name]
        if not self._taken:
            self._taken = set(_property_names(self._root))
        plain = re.sub(r"[^a-zA-Z0-9_.-]+", "_", name)[:60].strip("_") or "parameter"
        chosen, number = plain, 2
        while chosen in self._taken:
            chosen, number = f"{plain[:56]}_{number}", number + 1
        self._taken.add(chosen)
        self.renamed[name] = chosen
        return chosen

    def _array(self, new: dict[str, Any], path: str, words: list[str]) -> None:
        """Give an array `items`, which say what may be in it."""
        if self.dialect.bare_arrays or (
            "array" not in SchemaReader(new).types and "prefixItems" not in new
        ):
            return
        places = new.get("prefixItems")
        items = new.get("items")
        if isinstance(places, list):
            del new["prefixItems"]
            closed = _is_never(items)
            rest = [items] if isinstance(items, Mapping) and items and not closed else []
            new["items"] = _one_of([*places, *rest])
            if closed and "maxItems" not in new:
                new["maxItems"] = len(places)
            words.append(_order_words(places))
            self._note(path, "a list of items by their places is sent as a list of any of them")
        elif items is None:
            new["items"] = {}
            self._note(path, "an array without items gets items: {}")

    def _pattern(self, new: dict[str, Any], path: str, words: list[str]) -> None:
        pattern = new.get("pattern")
        if isinstance(pattern, str) and not takes_pattern(self.dialect.patterns, pattern):
            del new["pattern"]
            words.append(pattern_words(pattern))
            self._note(path, "its pattern is described in words")
        named = new.get("patternProperties")
        if isinstance(named, Mapping):
            refused = [each for each in named if not takes_pattern(self.dialect.patterns, each)]
            if refused:
                taken = {name: part for name, part in named.items() if name not in refused}
                new["patternProperties"] = taken
                if new.get("additionalProperties") is False:
                    new["additionalProperties"] = True
                words += [f"Property names: {pattern_words(each)}" for each in refused[:3]]
                self._note(path, "patterns of property names are described in words")

    def _values(self, new: dict[str, Any], path: str, words: list[str]) -> None:
        """Describe bounds and choices in words that the dialect refuses."""
        most = self.dialect.most_repeats
        if most is not None:
            for word, text in _BOUNDS.items():
                bound = new.get(word)
                if isinstance(bound, int | float) and bound > most:
                    del new[word]
                    words.append(f"{text.format(f'{bound:,}')}.")
                    self._note(path, f"{word}: {bound} is described in words")
        if not self.dialect.text_choices:
            return
        if "const" in new:
            value = new.pop("const")
            if isinstance(value, str):
                new["enum"] = [value]
            else:
                words.append(f"Always {_json(value)}.")
            self._note(path, "const is written as the only choice")
        choices = new.get("enum")
        if isinstance(choices, list) and not all_are(choices, str):
            del new["enum"]
            words.append(f"One of: {_joined(map(_json, choices))}.")
            self._note(path, "choices that are not texts are described in words")


def _is_never(schema: Any) -> bool:
    return schema is False or (
        isinstance(schema, Mapping) and schema.keys() == {"not"} and schema["not"] in ({}, True)
    )


def _saying(part: Any, name: str) -> Any:
    """Name a property's real name in its description."""
    described_part = dict(part) if isinstance(part, Mapping) else {}
    described_part["description"] = described(
        described_part.get("description"), f"Its real name is {name[:200]!r}."
    )
    return described_part


def _one_of(parts: Sequence[Any]) -> Any:
    different: list[Any] = []
    for part in parts:
        if part not in different:
            different.append(part)
    if len(different) == 1:
        return different[0]
    return {"anyOf": different} if different else {}


def _order_words(places: Sequence[Any]) -> str:
    names = list(map(_short, places))
    return f"In this order: {_joined(names)}."


def _short(part: Any) -> str:
    text = ""
    if isinstance(part, Mapping):
        text = part.get("title") or part.get("description") or " or ".join(SchemaReader(part).types)
    return str(text or "anything")[:60]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _joined(texts: Iterable[str]) -> str:
    return _cut(", ".join(texts))


def _property_names(schema: Schema) -> list[str]:
    names: list[str] = []
    waiting: list[Any] = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Mapping):
            properties = node.get("properties")
            if isinstance(properties, Mapping):
                names += properties
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
    return names


# Choices at the top

_MAX_MERGES = 5


def _flattened(schema: Schema, root: Schema, depth: int) -> tuple[dict[str, Any], list[str]]:
    """Merge the choices at the top of a schema into one object with all their properties.

    Required is what every option requires. Words say what belongs together.
    """
    if depth > _MAX_MERGES:
        raise _Unusable("its choices are nested too deeply")
    if "$ref" in schema:
        target = lookup(str(schema["$ref"]), root)
        if not isinstance(target, Mapping):
            raise _Unusable(f"it refers to {str(schema['$ref'])[:100]!r}, which is not in it")
        beside = {word: value for word, value in schema.items() if word != "$ref"}
        return _flattened({**target, **beside}, root, depth + 1)
    own = {word: value for word, value in schema.items() if word not in _AT_TOP}
    words: list[str] = []
    for choice in CHOICE_KEYWORDS:
        options = schema.get(choice)
        if isinstance(options, list):
            _merge(own, choice, options, root, depth, words)
    rules = {word: schema[word] for word in _RULES if word in schema}
    if rules and not _is_never(rules.get("not")):
        words.append(f"Its arguments also follow this JSON Schema: {_cut(_json(rules))}")
    return own, words


def _merge(
    own: dict[str, Any],
    choice: str,
    options: Sequence[Any],
    root: Schema,
    depth: int,
    words: list[str],
) -> None:
    merged = []
    for option in options:
        if not isinstance(option, Mapping):
            # True takes everything, and nothing fits False.
            continue
        flat, more = _flattened(option, root, depth + 1)
        words += more
        kinds = SchemaReader(flat).types
        if not kinds or "object" in kinds:
            merged.append(flat)
    if options and not merged and any(isinstance(option, Mapping) for option in options):
        if not own.get("properties"):
            raise _Unusable(
                f"none of its options in {choice} is an object, and only an object can be sent"
            )
        return
    known = dict(_properties(own))
    added: dict[str, list[Any]] = {}
    for flat in merged:
        for name, part in _properties(flat).items():
            added.setdefault(name, []).append(part)
    for name, parts in added.items():
        if name not in known:
            known[name] = _one_of(parts) if choice != "allOf" else _all_of(parts)
        elif choice == "allOf" and known[name] not in parts:
            known[name] = _all_of([known[name], *parts])
    own["properties"] = known
    required_by_each = [SchemaReader(flat).required for flat in merged]
    common = list(chain(*required_by_each))
    if choice != "allOf":
        common = [name for name in common if all(name in names for names in required_by_each)]
    required = list(dict.fromkeys([*SchemaReader(own).required, *common]))
    if required:
        own["required"] = required
    if choice != "allOf" and (text := _options_in_words(choice, merged, required)):
        words.append(text)


def _all_of(parts: Sequence[Any]) -> Any:
    different = _one_of(parts)
    if isinstance(different, Mapping) and different.keys() == {"anyOf"}:
        return {"allOf": different["anyOf"]}
    return different


def _properties(schema: Schema) -> Schema:
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _options_in_words(choice: str, options: Sequence[Schema], common: Sequence[str]) -> str:
    texts = []
    for option in options[:_MAX_OPTIONS]:
        fixed = _fixed_values(option)
        names = list(fixed)
        names += [name for name in SchemaReader(option).required if name not in (*common, *fixed)]
        texts.append(
            " and ".join(f"{name} = {fixed[name]}" if name in fixed else name for name in names)
        )
    different = list(dict.fromkeys(filter(None, texts)))
    if len(different) < 2:
        return ""
    several = "Use exactly one of these" if choice == "oneOf" else "Use at least one of these"
    return _cut(f"{several}: {'; or '.join(different)}.")


def _fixed_values(schema: Schema) -> dict[str, str]:
    """Find the properties that can have one value only, with that value."""
    fixed: dict[str, str] = {}
    for name, part in SchemaReader(schema).properties.items():
        if len(part.choices) == 1:
            fixed[name] = _json(part.choices[0])
    return fixed


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_WORDS else f"{text[:_MAX_WORDS]}…"


# Patterns

_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_IN_BRACKETS = re.compile(r"\[\^?\]?[^\]]*\]")
_SPECIAL_GROUP = re.compile(r"\(\?(?!:)")
_NOT_PLAIN = frozenset("123456789pPkgXRGAZz")
"""After a backslash: back references, classes of Unicode, and anchors that only some engines know.
"""


@lru_cache(maxsize=4_096)
def takes_pattern(patterns: Patterns, pattern: str) -> bool:
    """Check whether a dialect takes a regular expression."""
    if not compiles(pattern):
        return False
    if patterns == "python":
        return True
    if any(letter in _NOT_PLAIN for letter in _ESCAPED.findall(pattern)):
        return False
    bare = _IN_BRACKETS.sub("", _ESCAPED.sub("", pattern))
    if _SPECIAL_GROUP.search(bare) or re.search(r"[*+?}]\+", bare):
        return False
    return patterns == "plain" or _fits_a_grammar(pattern)


_OUTSIDE, _INSIDE = frozenset("^$.[]()|{}*+?"), frozenset("\\[]tnr")
"""What may follow a backslash, outside of brackets and in them."""
_MOST_IN_GRAMMAR = 1_000
"""The largest number of repeats."""


def _fits_a_grammar(pattern: str) -> bool:
    """Check whether llama.cpp can write a pattern as a rule of its grammar: anchored, with plain
    letters and brackets.
    """
    if not (pattern.startswith("^") and pattern.endswith("$")) or pattern.endswith("\\$"):
        return False
    inside, escaped, before = False, False, ""
    for letter in pattern[1:-1]:
        if escaped:
            if letter not in (_INSIDE if inside else _OUTSIDE):
                return False
            escaped, letter = False, "."
        elif letter == "\\":
            escaped = True
        elif inside:
            inside = letter != "]"
        elif letter == "[":
            inside = True
        elif letter in "^$" or (letter == "?" and before in "*+?}" and before):
            return False
        before = letter
    repeats = "".join(re.findall(r"\{[\d,]*\}", pattern))
    return all(int(count) <= _MOST_IN_GRAMMAR for count in re.findall(r"\d+", repeats))
