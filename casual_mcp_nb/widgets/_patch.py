"""Differences of JSON values, as RFC 7396 merge patches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """What turns `old` into `new` when it is merged in; empty where they are the same.

    Source: RFC 7396. In such patches None means absent, so a value of None is treated as one that is not there.
    """
    patch: dict[str, Any] = {key: None for key, value in old.items() if value is not None and new.get(key) is None}
    for key, value in new.items():
        before = old.get(key)
        if value is None or value is before:
            continue
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if part := merge_patch(before, value):
                patch[key] = part
        elif value != before:
            patch[key] = value
    return patch
