"""The `time` server: clocks, time zones, dates and durations."""

from __future__ import annotations

import calendar
import warnings
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cache
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from casual_mcp_nb.base.time_zones import zones_by_name
from casual_mcp_nb.bundled._server import FunctionServer, closest, counted, reads

_VALID = "'2026-03-01', '2026-03-01T14:30', '14:30', '1 March 2026', '01.03.2026', 'now' or 'today'"


def parse_moment(text: str, zone: tzinfo = UTC) -> datetime:
    """Parse a date, a time today, or both: ISO 8601, a common date format, `now` or `today`.

    The zone applies to `now`, `today` and times without a date. Without an offset in the text, the
    result is naive.
    """
    cleaned = text.strip()
    now = datetime.now(zone).replace(tzinfo=None, microsecond=0)
    if cleaned.casefold() == "now":
        return now
    if cleaned.casefold() == "today":
        return now.replace(hour=0, minute=0, second=0)
    # A colon within the first three characters means a time of day: no ISO date has one there.
    if ":" in cleaned[:3]:
        cleaned = f"{now.date().isoformat()}T{cleaned.zfill(5)}"
    try:
        return datetime.fromisoformat(cleaned)
    except ValueError:
        return written_date(text, now)


def time_zone(name: str) -> tzinfo:
    """Find a time zone by its name or city.

    Raises:
        ToolError: There is none; the message names the closest ones.
    """
    zones, wanted = zones_by_name(), name.strip().casefold()
    zone = (
        zones.get(wanted)
        or zones.get(wanted.replace("_", " "))
        or zones.get(wanted.replace(" ", "_"))
    )
    if zone is None:
        raise ToolError(f"Unknown time zone {name[:80]!r}. {closest(wanted, list(zones))}")
    if zone == "UTC":
        return UTC
    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, OSError, ValueError) as error:
        raise ToolError(f"The time zone {zone} cannot be read on this system.") from error


@cache
def zone_names() -> list[str]:
    """List all time zones on this system by name, sorted."""
    return sorted(available_timezones())


def written_date(text: str, now: datetime) -> datetime:
    """Parse a date as people write it. Missing parts are not filled in, except a time's day."""
    from dateutil.parser import parse

    midnight = now.replace(hour=0, minute=0, second=0)
    # Every part of it differs from today's, and so shows what the parser fills in.
    elsewhen = datetime(now.year - 1, now.month % 12 + 1, now.day % 28 + 1)
    # 01.03.2026 has the day first everywhere, 2026/03/01 the month; 01/03/2026 can be either.
    year_first = text.strip()[:4].isdecimal()
    day_first = "." in text
    either = not year_first and not day_first
    try:
        with warnings.catch_warnings(action="error"):
            found = parse(text, default=midnight, dayfirst=day_first, yearfirst=year_first)
            swapped = found
            if either:
                swapped = parse(text, default=midnight, dayfirst=True, yearfirst=False)
            then = parse(text, default=elsewhen, dayfirst=day_first, yearfirst=year_first)
    except (ValueError, OverflowError, Warning) as error:
        raise ToolError(
            f"{text[:60]!r} is not a date or time that is understood. Valid: {_VALID}."
        ) from error
    if found != swapped:
        raise ToolError(
            f"{text[:60]!r} can be {found.day} {found:%B} or {swapped.day} {swapped:%B}. Write it"
            " like 2026-03-01."
        )
    is_time_today = ":" in text and found.date() == midnight.date()
    if then.date() != found.date() and not is_time_today:
        raise ToolError(f"{text[:60]!r} is not a date or time that is understood. Valid: {_VALID}.")
    return found


Zone = Annotated[
    str,
    Field(
        description="Time zone such as 'Europe/Oslo', 'America/New_York' or 'UTC'", max_length=100
    ),
]
Moment = Annotated[
    str,
    Field(
        description="Date or time, such as '2026-03-01', '2026-03-01T14:30' or '14:30'",
        max_length=100,
    ),
]
Amount = Annotated[int, Field(ge=-1_000_000, le=1_000_000)]


def build() -> FunctionServer:
    """Build the server."""
    tools = reads(
        current_time,
        convert_time,
        add_duration,
        date_difference,
        parse_date,
        day_of_week,
        month_calendar,
        from_timestamp,
        list_timezones,
    )
    return FunctionServer("time", "Clocks, time zones, dates and durations.", tools)


def current_time(timezone: Zone = "UTC") -> dict[str, Any]:
    """Tell the current date and time, today and now, in a time zone.

    Also returns weekday, UTC offset and timestamp.
    """
    return _summarized(datetime.now(time_zone(timezone)), timezone)


def convert_time(
    time: Moment,
    from_timezone: Annotated[str, Field(description="Time zone of the given time", max_length=100)],
    to_timezone: Annotated[str, Field(description="Time zone to convert to", max_length=100)],
) -> dict[str, Any]:
    """Convert a time from one time zone to another. A time without a date is taken as today's."""
    source, target = time_zone(from_timezone), time_zone(to_timezone)
    moment = parse_moment(time, source)
    try:
        start = moment.astimezone(source) if moment.tzinfo else moment.replace(tzinfo=source)
        end = start.astimezone(target)
    except OverflowError as error:
        raise ToolError("The result is outside the years 1 to 9999.") from error
    day = "the same day" if start.date() == end.date() else f"{end:%A} {end.day} {end:%B}"
    return {
        "summary": f"{start:%H:%M} in {from_timezone} is {end:%H:%M} in {to_timezone}, {day}.",
        "from": _described(start, from_timezone),
        "to": _described(end, to_timezone),
        "hours_apart": _hours(end) - _hours(start),
        "note": _clock_change(start),
    }


def add_duration(
    time: Moment,
    years: Annotated[Amount, Field(description="Years to add, negative to subtract")] = 0,
    months: Annotated[Amount, Field(description="Months to add")] = 0,
    weeks: Annotated[Amount, Field(description="Weeks to add")] = 0,
    days: Annotated[Amount, Field(description="Days to add")] = 0,
    hours: Annotated[Amount, Field(description="Hours to add")] = 0,
    minutes: Annotated[Amount, Field(description="Minutes to add")] = 0,
    seconds: Annotated[Amount, Field(description="Seconds to add")] = 0,
) -> dict[str, Any]:
    """Add a duration to a date or time, or subtract one with negative numbers.

    The 31st plus one month is the last day of the next month.
    """
    from dateutil.relativedelta import relativedelta

    moment = parse_moment(time)
    try:
        shifted = moment + relativedelta(years=years, months=months)
        shifted += timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
    except (OverflowError, ValueError) as error:
        raise ToolError("The result is outside the years 1 to 9999.") from error
    return {
        "start": moment.isoformat(),
        "result": shifted.isoformat(),
        "weekday": shifted.strftime("%A"),
    }


def date_difference(
    start: Annotated[
        str, Field(description="The first date or time, such as '2026-01-31'", max_length=100)
    ],
    end: Annotated[str, Field(description="The second date or time", max_length=100)],
) -> dict[str, Any]:
    """Calculate the time between two dates or times, such as the days until a date or how old
    someone is who was born on one.

    Returns days, weeks, hours and seconds, the same in years, months and days, and the number of
    weekdays.
    """
    from dateutil.relativedelta import relativedelta

    first, second = parse_moment(start), parse_moment(end)
    if (first.tzinfo is None) != (second.tzinfo is None):
        raise ToolError(
            "One of the two has a UTC offset and the other has none. Give both or neither."
        )
    seconds = (second - first).total_seconds()
    early, late = sorted((first, second))
    between = relativedelta(late, early)
    length = f"{abs(seconds) / 3600:,.12g} hours"
    if seconds % 86_400 == 0:
        length = counted(abs((second - first).days), "day")
    parts = {"year": between.years, "month": between.months, "day": between.days}
    units = [counted(number, unit) for unit, number in parts.items() if number]
    in_units = ", ".join(units) or "0 days"
    if in_units != length:
        length = f"{length} ({in_units})"
    return {
        "summary": f"From {early.day} {early:%B %Y} to {late.day} {late:%B %Y}: {length}.",
        "days": (second - first) / timedelta(days=1),
        "weeks": seconds / 604_800,
        "hours": seconds / 3600,
        "seconds": seconds,
        "calendar": {"years": between.years, "months": between.months, "days": between.days},
        "weekdays": _weekdays(early.date(), late.date()),
        "end_is_before_start": second < first,
    }


def parse_date(
    text: Annotated[
        str, Field(description="For example '1 March 2026', 'March 1, 2026' or '01.03.2026'")
    ],
) -> dict[str, Any]:
    """Read a date in a common way of writing. Returns it as ISO, with weekday and week number."""
    moment = parse_moment(text)
    week = moment.isocalendar()
    return {
        "iso": moment.isoformat(),
        "date": moment.date().isoformat(),
        "weekday": moment.strftime("%A"),
        "iso_week": f"{week.year}-W{week.week:02}",
        "day_of_year": moment.timetuple().tm_yday,
        "leap_year": calendar.isleap(moment.year),
    }


def day_of_week(
    date: Annotated[str, Field(description="A date such as '2026-03-01'", max_length=100)],
) -> str:
    """Tell on which day of the week a date falls: its weekday, such as Monday."""
    return parse_moment(date).strftime("%A")


def month_calendar(
    year: Annotated[int, Field(description="The year, 1 to 9999", ge=1, le=9999)],
    month: Annotated[int, Field(description="The month, 1 to 12", ge=1, le=12)],
) -> str:
    """Show the calendar of a month as text, weeks beginning on Monday."""
    return calendar.TextCalendar().formatmonth(year, month)


def from_timestamp(
    timestamp: Annotated[
        float,
        Field(
            description="Seconds since 1970-01-01 UTC; milliseconds are recognised",
            allow_inf_nan=False,
        ),
    ],
    timezone: Zone = "UTC",
) -> dict[str, Any]:
    """Convert a Unix timestamp to a date and time in a time zone."""
    seconds = timestamp / 1000 if abs(timestamp) >= 1e11 else timestamp
    try:
        moment = datetime.fromtimestamp(seconds, UTC).astimezone(time_zone(timezone))
    except (OverflowError, ValueError, OSError) as error:
        raise ToolError("The timestamp is outside the years 1 to 9999.") from error
    return _summarized(moment, timezone)


def list_timezones(
    filter: Annotated[
        str, Field(description="Part of the name, such as 'Europe' or 'york'; empty for all")
    ] = "",
    limit: Annotated[int, Field(description="The most names to return", ge=1, le=1000)] = 100,
) -> dict[str, Any]:
    """List the names of time zones that contain a text."""
    wanted = filter.casefold().replace(" ", "_")
    names = [name for name in zone_names() if wanted in name.casefold()]
    return {"total": len(names), "timezones": names[:limit], "truncated": len(names) > limit}


def _summarized(moment: datetime, timezone: str) -> dict[str, Any]:
    summary = (
        f"{moment:%H:%M} on {moment:%A}, {moment.day} {moment:%B} {moment.year}, in {timezone}."
    )
    return {"summary": summary, **_described(moment, timezone)}


def _described(moment: datetime, timezone: str) -> dict[str, Any]:
    return {
        "time": moment.isoformat(timespec="seconds"),
        "date": moment.date().isoformat(),
        "weekday": moment.strftime("%A"),
        "timezone": timezone,
        "utc_offset_hours": _hours(moment),
        "timestamp": int(moment.timestamp()),
    }


def _hours(moment: datetime) -> float:
    offset = moment.utcoffset()
    return offset.total_seconds() / 3600 if offset else 0.0


def _clock_change(moment: datetime) -> str | None:
    if moment.replace(fold=1).utcoffset() == moment.utcoffset():
        return None
    there_and_back = moment.astimezone(UTC).astimezone(moment.tzinfo)
    if there_and_back.replace(tzinfo=None) != moment.replace(tzinfo=None):
        return "This local time does not exist: the clocks are put forward over it."
    return "This local time occurs twice because the clocks are put back. The first one is used."


def _weekdays(first: date, last: date) -> int:
    """Count the days from Monday to Friday, the last day left out."""
    weeks, days_left = divmod((last - first).days, 7)
    return weeks * 5 + sum((first.weekday() + day) % 7 < 5 for day in range(days_left))
