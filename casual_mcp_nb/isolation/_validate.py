"""Validate a value against a JSON schema, both from a server.

Runs in the worker process, without the package.
"""

from __future__ import annotations

import json
from functools import lru_cache
from itertools import islice
from typing import Any

from jsonschema import SchemaError
from jsonschema.exceptions import best_match
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

MAX_CHARACTERS = 20_000
MAX_SUMMARY_CHARACTERS = 300
MOST = 10


def validate(argument: dict[str, Any]) -> dict[str, str] | list[str] | None:
    """Validate a value.

    Args:
        argument: `schema`, as JSON text, and `value`. With `all`, the first errors are returned.

    Returns:
        None if it is valid; `invalid` if the schema itself is not. Otherwise the most relevant
        error's `path` and `message`, or the list of errors in words.
    """
    try:
        if argument.get("all"):
            errors = islice(_validator(argument["schema"]).iter_errors(argument["value"]), MOST)
            return [_in_words(error) for error in errors] or None
        error: Any = best_match(_validator(argument["schema"]).iter_errors(argument["value"]))
    except (MemoryError, RecursionError, TimeoutError):
        raise
    except SchemaError as broken:
        return {"invalid": f"at {broken.json_path}: {broken.message}"[:MAX_CHARACTERS]}
    except Unresolvable as broken:
        return {"invalid": str(broken)[:MAX_CHARACTERS]}
    except Exception as broken:
        # Errors that the library does not handle, such as an invalid regular expression.
        return {"invalid": f"{type(broken).__name__}: {broken}"[:MAX_CHARACTERS]}
    if error is None:
        return None
    return {
        "path": str(error.json_path)[:MAX_CHARACTERS],
        "message": str(error.message)[:MAX_CHARACTERS],
    }


def _in_words(error: Any) -> str:
    path = error.json_path.removeprefix("$").removeprefix(".")
    message, value = str(error.message), repr(error.instance)
    if len(value) > MAX_SUMMARY_CHARACTERS:
        # It begins with the value, and only then says what was expected.
        kinds: dict[type, str] = {str: "text", list: "list", dict: "object"}
        kind = kinds.get(type(error.instance), "value")
        message = message.replace(value, f"the {kind}", 1)
    text = f"{path}: {message}" if path else message
    return text[:MAX_SUMMARY_CHARACTERS]


@lru_cache(maxsize=256)
def _validator(schema: str) -> Any:
    parsed = json.loads(schema)
    kind = validator_for(parsed)
    kind.check_schema(parsed)
    # An empty registry: references resolve within the schema, and nothing is fetched.
    return kind(parsed, registry=Registry())
