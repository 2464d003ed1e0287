"""Parse dates, times and time zones as people write them."""

from __future__ import annotations

import calendar
from datetime import UTC, datetime, tzinfo
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from casual_mcp_nb.bundled._server import ToolError, closest
from casual_mcp_nb.types.time_zones import zones_by_name

_FORMATS = (
    "%d %B %Y",
    "%d %b %Y",
    "%B %d %Y",
    "%b %d %Y",
    "%d.%m.%Y",
    "%Y/%m/%d",
    "%a %d %b %Y",
    "%A %d %B %Y",
)
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
        return _written(text)


def shift_months(moment: datetime, months: int) -> datetime:
    """Add months to a date; a day beyond the end of the month becomes its last day.

    Raises:
        ValueError: The result is outside the years 1 to 9999.
    """
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise ValueError("year out of range")
    last = calendar.monthrange(year, month + 1)[1]
    return moment.replace(year=year, month=month + 1, day=min(moment.day, last))


def time_zone(name: str) -> tzinfo:
    """Return a time zone by its name, or by the name of its city.

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
    """Return the names of all time zones that this system knows, in order."""
    return sorted(available_timezones())


def _written(text: str) -> datetime:
    plain = " ".join(text.replace(",", " ").split())
    for written in _FORMATS:
        try:
            return datetime.strptime(plain, written)
        except ValueError:
            continue
    raise ToolError(f"{text[:60]!r} is not a date or time that is understood. Valid: {_VALID}.")
