"""Job postings in HTML pages, which describe them in JSON-LD: https://schema.org/JobPosting."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import unescape
from itertools import islice
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.extract.html import html_to_text, parse_html

if TYPE_CHECKING:
    from lxml.html import HtmlElement

_MAX_POSTINGS = 20
_MAX_DEPTH = 6
_MAX_TEXT = 500
_MAX_DESCRIPTION = 10_000


def job_postings(page: str | HtmlElement) -> list[dict[str, Any]]:
    """Extract the job postings that a page describes.

    Args:
        page: The HTML of the page, or its root element.

    Returns:
        For each of at most 20: title, company, locations, remote, employment_type, date_posted, valid_through, salary, url and
        description as text. What the page does not say is left out.
    """
    tree = parse_html(page) if isinstance(page, str) else page
    blocks = [] if tree is None else tree.iterfind(".//script[@type='application/ld+json']")
    postings = (posting for block in blocks for posting in _postings(_loaded(block.text or "")))
    return [_fields(posting) for posting in islice(postings, _MAX_POSTINGS)]


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
        if "JobPosting" in (kinds if isinstance(kinds, list) else [kinds]):
            yield value
            return
        children = [value.get("@graph"), value.get("mainEntity")]
    else:
        return
    for child in children if depth < _MAX_DEPTH else ():
        yield from _postings(child, depth + 1)


def _fields(posting: dict[str, Any]) -> dict[str, Any]:
    pay = _first(posting.get("baseSalary"))
    amount = _first(pay.get("value")) if isinstance(pay, dict) else {}
    description = posting.get("description")
    fields = {
        "title": _text(posting.get("title")),
        "company": _text(posting.get("hiringOrganization")),
        "locations": [location for each in _listed(posting.get("jobLocation")) if (location := _location(each))],
        "remote": _text(posting.get("jobLocationType")) == "TELECOMMUTE" or None,
        "employment_type": [_text(each) for each in _listed(posting.get("employmentType"))],
        "date_posted": _text(posting.get("datePosted")),
        "valid_through": _text(posting.get("validThrough")),
        "salary": " ".join(
            part
            for part in (
                _range(amount) if isinstance(amount, dict) else _text(amount),
                _text(pay.get("currency")) if isinstance(pay, dict) else _text(pay),
                f"per {_text(amount.get('unitText')).lower()}" if isinstance(amount, dict) and amount.get("unitText") else "",
            )
            if part
        ),
        "url": _text(posting.get("url")),
        "description": _description(description) if isinstance(description, str) else "",
    }
    return {name: value for name, value in fields.items() if value}


def _description(text: str) -> str:
    # Some pages, such as LinkedIn's, escape the HTML in it.
    return html_to_text(text if "<" in text else unescape(text), max_characters=_MAX_DESCRIPTION)


def _listed(value: Any) -> list[Any]:
    return value[:_MAX_POSTINGS] if isinstance(value, list) else [] if value is None else [value]


def _first(value: Any) -> Any:
    return next(iter(_listed(value)), {})


def _text(value: Any) -> str:
    value = _first(value)
    if isinstance(value, dict):
        value = value.get("name")
    return " ".join(str(value).split())[:_MAX_TEXT] if isinstance(value, str | int | float) else ""


def _location(location: Any) -> str:
    address = _first(location.get("address")) if isinstance(location, dict) else location
    if not isinstance(address, dict):
        return _text(address)
    parts = (_text(address.get(key)) for key in ("addressLocality", "addressRegion", "addressCountry"))
    return ", ".join(dict.fromkeys(part for part in parts if part))


def _range(amount: dict[str, Any]) -> str:
    bounds = [_text(amount.get(key)) for key in ("minValue", "maxValue")]
    return " to ".join(bound for bound in bounds if bound) or _text(amount.get("value"))
