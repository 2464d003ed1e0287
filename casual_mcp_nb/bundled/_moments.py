"""Parse dates, times and time zones as people write them."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime, tzinfo
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from casual_mcp_nb.bundled._server import ToolError, closest
from casual_mcp_nb.types.time_zones import zones_by_name

_VALID = "'2026-03-01', '2026-03-01T14:30', '14:30', '1 March 2026', '01.03.2026', 'now' or 'today'"


def parse_moment(text: str, zone: tzinfo = UTC) -> datetime:
    """Parse a date, a time today, or both.

    Args:
        text: ISO 8601, a common date format, `now` or `today`.
        zone: The time zone of `now`, `today` and times without a date.

    Returns:
        A datetime with the offset in the text; naive without one.

    Raises:
        ToolError: The text is not a date.
    """
    cleaned = text.strip()
    now = datetime.now(zone).replace(tzinfo=None, microsecond=0)
    if cleaned.casefold() in ("now", "today"):
        return now if cleaned.casefold() == "now" else now.replace(hour=0, minute=0, second=0)
    # A colon within the first three characters means a time of day: no ISO date has one there.
    dated = f"{now.date().isoformat()}T{cleaned.zfill(5)}" if ":" in cleaned[:3] else cleaned
    try:
        return datetime.fromisoformat(dated)
    except ValueError:
        return _written(text, now)


def time_zone(name: str) -> tzinfo:
    """Find a time zone by its name, or by the name of its city.

    Raises:
        ToolError: There is none; the message names the closest ones.
    """
    zones, wanted = zones_by_name(), name.strip().casefold()
    zone = zones.get(wanted) or zones.get(wanted.replace("_", " ")) or zones.get(wanted.replace(" ", "_"))
    try:
        if zone is not None:
            return UTC if zone == "UTC" else ZoneInfo(zone)
    except (ZoneInfoNotFoundError, OSError, ValueError) as error:
        raise ToolError(f"The time zone {zone} cannot be read on this system.") from error
    raise ToolError(f"Unknown time zone {name[:80]!r}. {closest(wanted, list(zones))}")


@cache
def zone_names() -> list[str]:
    """List the names of all time zones on this system, sorted."""
    return sorted(available_timezones())


def _written(text: str, now: datetime) -> datetime:
    """Parse a date as people write it. Missing parts are not filled in, except the day of a time."""
    from dateutil.parser import parse

    midnight = now.replace(hour=0, minute=0, second=0)
    # 01.03.2026 has the day first everywhere, 2026/03/01 the month; 01/03/2026 can be either.
    year_first = text.strip()[:4].isdecimal()
    days_first = ("." in text,) if year_first or "." in text else (False, True)
    try:
        with warnings.catch_warnings(action="error"):
            dates = {parse(text, default=midnight, dayfirst=first, yearfirst=year_first) for first in days_first}
            other = parse(text, default=datetime(1999, 10, 28), dayfirst=days_first[-1], yearfirst=year_first)
    except (ValueError, OverflowError, Warning) as error:
        raise ToolError(f"{text[:60]!r} is not a date or time that is understood. Valid: {_VALID}.") from error
    date = dates.pop()
    if dates:
        other = dates.pop()
        raise ToolError(f"{text[:60]!r} can be {date.day} {date:%B} or {other.day} {other:%B}; write it like 2026-03-01.")
    if other.date() != date.date() and not (":" in text and date.date() == midnight.date()):
        raise ToolError(f"{text[:60]!r} is not a date or time that is understood. Valid: {_VALID}.")
    return date
