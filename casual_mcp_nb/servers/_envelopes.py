"""Repair the JSON-RPC envelope of a message, where the SDK's parser would drop the message with all
that is in it.

See https://www.jsonrpc.org/specification. What is repaired has one meaning only: an error whose
code is not a number, an empty list for an empty object as PHP writes it, an id as the float that
Lua makes of it.
"""

from __future__ import annotations

import json
import re
from typing import Any

MAX_BYTES = 64 * 1024
"""Longer messages are neither errors nor empty, and are not looked at."""
INTERNAL_ERROR = -32603
MAX_TEXT = 2_000
_ODD = re.compile(rb'"error"\s*:|"(?:result|params)"\s*:\s*[^{\s]|"id"\s*:\s*\d+\.0')
_WHOLE_NUMBER = re.compile(r"-?\d{1,9}")


def repaired(message: bytes) -> bytes:
    """Repair a message, which may be the data of a server-sent event.

    Anything else is returned as it is.
    """
    if len(message) > MAX_BYTES or not (_ODD.search(message) or b'"jsonrpc"' not in message):
        return message
    start = message.find(b"{")
    if start < 0 or message[:start].strip() not in (b"", b"data:"):
        return message
    try:
        value = json.loads(message[start:])
    except (ValueError, RecursionError):
        return message
    better = _envelope(value)
    if better == value and _same_id(better, value):
        return message
    return message[:start] + json.dumps(better).encode()


def _envelope(value: dict[str, Any]) -> dict[str, Any]:
    """Build the message that is meant."""
    message = dict(value)
    if isinstance(message.get("id"), float) and message["id"].is_integer():
        message["id"] = int(message["id"])
    if "method" in message:
        if message.get("params") == []:
            message["params"] = {}
        return message
    if "id" not in message or not {"result", "error"}.intersection(message):
        return message
    message["jsonrpc"] = "2.0"
    result, error = message.get("result"), message.get("error")
    if isinstance(result, dict):
        return message
    if error is not None:
        message.pop("result", None)
        message["error"] = _error(error)
    elif result is None or result == []:
        message["result"] = {}
    else:
        message["result"] = {"result": result}
    return message


def _same_id(one: dict[str, Any], other: dict[str, Any]) -> bool:
    # 1 == 1.0
    return type(one.get("id")) is type(other.get("id"))


def _error(error: Any) -> dict[str, Any]:
    """Build an error object with a number and a text.

    A code that is a word is put before the text.
    """
    if not isinstance(error, dict):
        return {"code": INTERNAL_ERROR, "message": _text(error)}
    code, words = error.get("code"), _words(error)
    if isinstance(code, str) and _WHOLE_NUMBER.fullmatch(code.strip()):
        code = int(code)
    if isinstance(code, float) and code.is_integer():
        code = int(code)
    if isinstance(code, bool) or not isinstance(code, int):
        if code not in (None, ""):
            words = f"{_text(code)}: {words}"
        code = INTERNAL_ERROR
    return {**error, "code": code, "message": words}


def _words(error: dict[str, Any]) -> str:
    """Find what an error says, also where other conventions than JSON-RPC's have it."""
    for key in ("message", "detail", "description", "error", "title"):
        if isinstance(error.get(key), str) and error[key]:
            return str(error[key])
    given = {key: value for key, value in error.items() if key != "code"}
    if given:
        return _text(given)
    return "the server gives no reason"


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)[:MAX_TEXT]
