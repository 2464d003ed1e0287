"""Read the job postings that a page describes in JSON-LD: https://schema.org/JobPosting."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import unescape
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.bundled._documents import html_to_text, parse_html

if TYPE_CHECKING:
    from lxml.html import HtmlElement

_MAX_POSTINGS = 20
_MAX_DEPTH = 6
_MAX_TEXT = 500
_MAX_DESCRIPTION = 10_000


def job_postings(page: str | HtmlElement) -> list[dict[str, Any]]:
    """Extract up to 20 job postings from a page.

    Each has title, company, locations, remote, employment_type, date_posted, valid_through, salary,
    url and description, without those that are missing.
    """
    tree = parse_html(page) if isinstance(page, str) else page
    found: list[dict[str, Any]] = []
    if tree is None:
        return found
    for block in tree.iterfind(".//script[@type='application/ld+json']"):
        for posting in _postings(_loaded(block.text or "")):
            found.append(_fields(posting))
            if len(found) == _MAX_POSTINGS:
                return found
    return found


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _postings(value: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        children = value
    elif isinstance(value, dict):
        kinds = value.get("@type")
        if kinds == "JobPosting" or (isinstance(kinds, list) and "JobPosting" in kinds):
            yield value
            return
        children = [value.get("@graph"), value.get("mainEntity")]
    else:
        return
    if depth < _MAX_DEPTH:
        for child in children:
            yield from _postings(child, depth + 1)


def _fields(posting: dict[str, Any]) -> dict[str, Any]:
    locations = [_location(each) for each in _listed(posting.get("jobLocation"))]
    fields = {
        "title": _text(posting.get("title")),
        "company": _text(posting.get("hiringOrganization")),
        "locations": list(filter(None, locations)),
        "remote": _text(posting.get("jobLocationType")) == "TELECOMMUTE" or None,
        "employment_type": [_text(each) for each in _listed(posting.get("employmentType"))],
        "date_posted": _text(posting.get("datePosted")),
        "valid_through": _text(posting.get("validThrough")),
        "salary": _salary(_first(posting.get("baseSalary"))),
        "url": _text(posting.get("url")),
        "description": _description(posting.get("description")),
    }
    return {name: value for name, value in fields.items() if value}


def _salary(pay: Any) -> str:
    if not isinstance(pay, dict):
        return _text(pay)
    amount = _first(pay.get("value"))
    parts = [_text(amount), _text(pay.get("currency"))]
    if isinstance(amount, dict):
        parts[0] = _range(amount)
        if unit := amount.get("unitText"):
            parts.append(f"per {_text(unit).lower()}")
    return " ".join(filter(None, parts))


def _description(text: Any) -> str:
    if not isinstance(text, str):
        return ""
    if "<" not in text:
        # Some pages, such as LinkedIn's, escape the HTML in it.
        text = unescape(text)
    return html_to_text(text, max_characters=_MAX_DESCRIPTION)


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, list):
        return value[:_MAX_POSTINGS]
    return [value]


def _first(value: Any) -> Any:
    return next(iter(_listed(value)), {})


def _text(value: Any) -> str:
    value = _first(value)
    if isinstance(value, dict):
        value = value.get("name")
    if not isinstance(value, str | int | float):
        return ""
    return " ".join(str(value).split())[:_MAX_TEXT]


def _location(location: Any) -> str:
    address = _first(location.get("address")) if isinstance(location, dict) else location
    if not isinstance(address, dict):
        return _text(address)
    keys = ("addressLocality", "addressRegion", "addressCountry")
    parts = [_text(address.get(key)) for key in keys]
    # A city is often a region of the same name.
    return ", ".join(dict.fromkeys(filter(None, parts)))


def _range(amount: dict[str, Any]) -> str:
    bounds = [_text(amount.get(key)) for key in ("minValue", "maxValue")]
    return " to ".join(filter(None, bounds)) or _text(amount.get("value"))
