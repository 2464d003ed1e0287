"""The `anthropic-usage` server: an organization's usage and costs at Anthropic, from its Admin
API.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any, Literal

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field, SecretStr

from casual_mcp_nb.base.files import (
    NotPrivateError,
    account_file_problem,
    accounts_folder,
    read_account_file,
    write_account_file,
)
from casual_mcp_nb.base.iterables import all_are, drop_none
from casual_mcp_nb.base.proxies import named_variables
from casual_mcp_nb.bundled._mail import decoded_header
from casual_mcp_nb.bundled._server import FunctionServer, reads

VARIABLE = "ANTHROPIC_ADMIN_KEY"
HOME = "https://api.anthropic.com"
MAX_PAGES = 20
MAX_ROWS = 1000
_MAX_BYTES = 8_000_000
_BUCKETS = {"1d": 31, "1h": 168, "1m": 1440}
"""How many intervals a page can have at most."""
_TOKENS = (
    "input_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "output_tokens",
)

Starting = Annotated[
    str,
    Field(
        description="The first day or time in UTC, such as 2026-03-01; empty for seven days ago",
        max_length=40,
    ),
]
Ending = Annotated[
    str,
    Field(description="The day or time in UTC before which it ends; empty for now", max_length=40),
]


def key_file() -> Path:
    """Locate the key file, used if the server's environment has no key."""
    return accounts_folder() / "anthropic-admin-key"


def key_problem() -> str | None:
    """Explain why neither the environment nor the file has a usable key; None if one does.

    The file is not read.
    """
    if os.environ.get(VARIABLE):
        return None
    if not key_file().is_file():
        return "there is no admin key"
    return account_file_problem(key_file())


def save_key(key: str) -> None:
    """Save an admin key for this server. Errors never contain it."""
    if not re.fullmatch(r"sk-ant-admin[\w-]{10,200}", key.strip(), re.ASCII):
        raise ValueError("An admin key begins with sk-ant-admin. Other keys cannot read reports.")
    write_account_file(key_file(), key.strip())


def build(endpoint: str = HOME) -> FunctionServer:
    """Build the server.

    No command-line option changes the endpoint: a config could send the key elsewhere.
    """
    usage = Usage(_key(), endpoint)
    tools = reads(usage.anthropic_usage_report, usage.anthropic_cost_report, open_world=True)
    return FunctionServer(
        "anthropic-usage", "Tokens and costs of your organization at Anthropic. Read only.", tools
    )


def _key() -> SecretStr:
    try:
        key = SecretStr((os.environ.get(VARIABLE) or read_account_file(key_file())).strip())
    except NotPrivateError as error:
        raise ValueError(f"the saved admin key is not used: {error}") from None
    except (OSError, ValueError):
        raise ValueError(
            f"there is no admin key that can be read in {VARIABLE} or {key_file()}"
        ) from None
    if not re.fullmatch(r"[\w-]{1,300}", key.get_secret_value(), re.ASCII):
        raise ValueError("the value that is set is not an admin key")
    return key


class Usage:
    """An organization's tools."""

    def __init__(self, key: SecretStr, endpoint: str = HOME) -> None:
        self._key = key
        self._endpoint = endpoint

    async def anthropic_usage_report(
        self,
        starting_at: Starting = "",
        ending_at: Ending = "",
        bucket_width: Annotated[
            Literal["1d", "1h", "1m"], Field(description="How long each interval is")
        ] = "1d",
        group_by: Annotated[
            list[Literal["model", "workspace_id", "api_key_id", "service_tier", "context_window"]]
            | None,
            Field(description="What to split each interval by"),
        ] = None,
        models: Annotated[
            list[Annotated[str, Field(max_length=100)]] | None,
            Field(description="Only these models", max_length=20),
        ] = None,
    ) -> dict[str, Any]:
        """Report the tokens that the organization used through Anthropic's Messages API, for each
        interval and group.
        """
        params = {
            **_period(starting_at, ending_at),
            "bucket_width": bucket_width,
            "limit": _BUCKETS[bucket_width],
            "group_by[]": list(group_by or ()),
            "models[]": list(models or ()),
        }
        rows, complete = await self._rows("/v1/organizations/usage_report/messages", params)
        table = [_usage(row, group_by or ()) for row in rows]
        return {
            "rows": table,
            "totals": {name: sum(row[name] for row in table) for name in _TOKENS},
            "complete": complete,
        }

    async def anthropic_cost_report(
        self,
        starting_at: Starting = "",
        ending_at: Ending = "",
        group_by: Annotated[
            list[Literal["workspace_id", "description"]] | None,
            Field(
                description=(
                    "What to split each day by; description tells models and kinds of tokens apart"
                )
            ),
        ] = None,
    ) -> dict[str, Any]:
        """Report what the organization paid to Anthropic, in US dollars for each day.

        The Priority Tier is not in it.
        """
        params = {
            **_period(starting_at, ending_at),
            "bucket_width": "1d",
            "limit": 31,
            "group_by[]": list(group_by or ()),
        }
        rows, complete = await self._rows("/v1/organizations/cost_report", params)
        table = list(map(_cost, rows))
        total = sum((Decimal(row["usd"]) for row in table), Decimal())
        return {"rows": table, "total_usd": str(total), "complete": complete}

    async def _rows(self, path: str, params: dict[str, Any]) -> tuple[list[dict[str, Any]], bool]:
        """Fetch the results from all pages, each with its interval's times, and whether these are
        all.
        """
        import httpx2

        rows: list[dict[str, Any]] = []
        headers = {
            "x-api-key": self._key.get_secret_value(),
            "anthropic-version": "2023-06-01",
            "user-agent": "casual-mcp-nb",
        }
        with named_variables():
            client = httpx2.AsyncClient(base_url=self._endpoint, headers=headers, timeout=30)
        async with client:
            for _ in range(MAX_PAGES):
                page = await _page(client, path, params)
                for bucket in page["data"]:
                    for row in bucket.get("results", ()):
                        if isinstance(row, dict):
                            rows.append({**row, **_interval(bucket)})
                if len(rows) > MAX_ROWS:
                    return rows[:MAX_ROWS], False
                if not page.get("has_more") or not page.get("next_page"):
                    return rows, True
                params = {**params, "page": str(page["next_page"])}
        return rows, False


def _interval(bucket: dict[str, Any]) -> dict[str, str]:
    return {name: str(bucket.get(name, ""))[:40] for name in ("starting_at", "ending_at")}


async def _page(client: Any, path: str, params: dict[str, Any]) -> dict[str, Any]:
    import httpx2

    try:
        async with client.stream("GET", path, params=params) as response:
            data = bytearray()
            async for piece in response.aiter_bytes():
                data += piece
                if len(data) > _MAX_BYTES:
                    raise ToolError("Anthropic's answer is too long. Ask for fewer days or groups.")
    except httpx2.HTTPError as error:
        raise ToolError(
            f"Anthropic cannot be reached: {type(error).__name__}. Try again later."
        ) from None
    page = _object(bytes(data))
    if response.status_code != 200:
        raise ToolError(
            _advice(response.status_code, page, response.headers.get("retry-after", ""))
        )
    buckets = page.get("data")
    if not isinstance(buckets, list) or not all_are(buckets, dict):
        raise ToolError("Anthropic's answer is not a report.")
    return page


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return _as_object(value)


def _as_object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _advice(status: int, page: dict[str, Any], wait: str) -> str:
    error = _as_object(page.get("error"))
    words = decoded_header(str(error.get("message", "")))[:200]
    note = f" Anthropic says: {words}" if words else ""
    match status:
        case 401:
            return (
                "Anthropic does not accept the key (401). It must be an admin key, sk-ant-admin…,"
                f" that still exists.{note}"
            )
        case 403:
            return (
                "The key may not read reports (403). Only organizations have them, and only admins"
                f" create such keys.{note}"
            )
        case 429:
            when = "in a minute"
            if wait.isdigit() and len(wait) < 6:
                when = f"after {wait} seconds"
            return f"Too many requests (429). Ask again {when}.{note}"
        case _ if status >= 500:
            return f"Anthropic has a problem ({status}). Try again later.{note}"
        case _:
            return f"Anthropic refused the request ({status}).{note}"


def _usage(row: dict[str, Any], group_by: Sequence[str]) -> dict[str, Any]:
    written = _as_object(row.get("cache_creation"))
    tools = _as_object(row.get("server_tool_use"))
    return {
        **_fields(row, ("starting_at", "ending_at", *group_by)),
        "input_tokens": _number(row.get("uncached_input_tokens")),
        "cache_read_input_tokens": _number(row.get("cache_read_input_tokens")),
        "cache_creation_input_tokens": sum(map(_number, written.values())),
        "output_tokens": _number(row.get("output_tokens")),
        "web_searches": _number(tools.get("web_search_requests")),
    }


_COST_FIELDS = (
    "starting_at",
    "ending_at",
    "workspace_id",
    "description",
    "model",
    "cost_type",
    "token_type",
    "service_tier",
)


def _cost(row: dict[str, Any]) -> dict[str, Any]:
    try:
        # The amount is in cents, as a decimal text.
        dollars = Decimal(str(row.get("amount"))[:40]) / 100
    except InvalidOperation:
        dollars = Decimal("NaN")
    if row.get("currency") not in (None, "USD") or not dollars.is_finite():
        raise ToolError("Anthropic's report has an amount that is not in US dollars.")
    fields = _fields(row, _COST_FIELDS)
    present = drop_none(fields)
    return {**present, "usd": str(dollars)}


def _fields(row: dict[str, Any], names: Sequence[str]) -> dict[str, str | None]:
    fields: dict[str, str | None] = dict.fromkeys(names)
    for name in names:
        if row.get(name) is not None:
            fields[name] = decoded_header(str(row[name]))[:200]
    return fields


def _number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _period(starting_at: str, ending_at: str) -> dict[str, str]:
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    start = _moment(starting_at) if starting_at else today - timedelta(days=7)
    period = {"starting_at": _written(start)}
    if ending_at:
        end = _moment(ending_at)
        if end <= start:
            raise ToolError("ending_at must be after starting_at.")
        period["ending_at"] = _written(end)
    return period


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ToolError(
            f"Not a day or time: {text[:40]!r}. Write it such as 2026-03-01 or 2026-03-01T06:00."
        ) from None
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _written(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
