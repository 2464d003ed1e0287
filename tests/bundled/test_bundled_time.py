from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from mcp.server.mcpserver.exceptions import ToolError

from casual_mcp_nb.bundled.time_server import written_date


async def test_the_current_time_is_the_one_of_the_zone(call) -> None:
    oslo = await call("time", "current_time", timezone="Europe/Oslo")

    assert abs(oslo["timestamp"] - datetime.now(UTC).timestamp()) < 60
    assert oslo["utc_offset_hours"] in (1, 2)
    assert oslo["summary"].startswith(oslo["time"][11:16])
    assert oslo["summary"].endswith("in Europe/Oslo.")


@pytest.mark.parametrize("name", ["Asia/Tokyo", "asia/tokyo", "Tokyo", " tokyo "])
async def test_a_zone_is_found_by_its_name_or_its_city(call, name: str) -> None:
    result = await call(
        "time", "convert_time", time="2026-03-01T12:00", from_timezone="UTC", to_timezone=name
    )

    assert result["to"]["time"] == "2026-03-01T21:00:00+09:00"
    assert (result["hours_apart"], result["note"]) == (9, None)


async def test_a_time_without_a_date_is_of_today(call) -> None:
    result = await call(
        "time", "convert_time", time="9:30", from_timezone="America/New_York", to_timezone="UTC"
    )

    assert result["from"]["time"][11:16] == "09:30"


@pytest.mark.parametrize(
    ("time", "fragment"),
    [("2026-03-29T02:30", "does not exist"), ("2026-10-25T02:30", "occurs twice")],
)
async def test_a_clock_change_is_reported(call, time: str, fragment: str) -> None:
    result = await call(
        "time", "convert_time", time=time, from_timezone="Europe/Oslo", to_timezone="UTC"
    )

    assert fragment in result["note"]


async def test_a_duration_is_added_by_the_calendar(call) -> None:
    assert (await call("time", "add_duration", time="2026-01-31", months=1))[
        "result"
    ] == "2026-02-28T00:00:00"
    leap = await call("time", "add_duration", time="2024-02-29", years=1, days=-1, hours=12)
    assert (leap["result"], leap["weekday"]) == ("2025-02-27T12:00:00", "Thursday")


async def test_the_difference_of_two_dates_is_counted(call) -> None:
    result = await call("time", "date_difference", start="2026-01-31", end="2026-03-02")

    assert (result["days"], result["seconds"], result["weekdays"]) == (30, 2592000, 20)
    assert result["calendar"] == {"years": 0, "months": 1, "days": 2}
    backwards = await call("time", "date_difference", start="2026-03-02", end="2026-01-31")
    assert (backwards["days"], backwards["end_is_before_start"]) == (-30, True)


@pytest.mark.parametrize(
    "text",
    [
        "1 March 2026",
        "March 1, 2026",
        "01.03.2026",
        "2026/03/01",
        "Sunday, 1 March 2026",
        "1st of March 2026",
    ],
)
async def test_a_date_is_read_as_people_write_it(call, text: str) -> None:
    result = await call("time", "parse_date", text=text)

    assert (result["date"], result["weekday"], result["iso_week"]) == (
        "2026-03-01",
        "Sunday",
        "2026-W09",
    )


@pytest.mark.parametrize("text", ["March 2026", "2 March", "Friday"])
def test_what_is_missing_in_a_date_is_never_todays(text: str) -> None:
    year = [datetime(2026, 1, 1) + timedelta(days=number) for number in range(365)]
    for now in [*year, datetime(1999, 10, 28), datetime(2028, 2, 29)]:
        with pytest.raises(ToolError):
            written_date(text, now)


async def test_weekday_calendar_timestamp_and_list_of_zones(call) -> None:
    assert await call("time", "day_of_week", date="2026-11-20") == "Friday"
    assert "November 2026" in await call("time", "month_calendar", year=2026, month=11)
    assert (await call("time", "from_timestamp", timestamp=0))[
        "time"
    ] == "1970-01-01T00:00:00+00:00"
    assert (await call("time", "from_timestamp", timestamp=1_700_000_000_000))[
        "date"
    ] == "2023-11-14"
    assert (await call("time", "list_timezones", filter="new york"))["timezones"] == [
        "America/New_York"
    ]


@pytest.mark.parametrize(
    ("tool", "arguments", "fragment"),
    [
        ("current_time", {"timezone": "Europe/Olso"}, "oslo"),
        ("current_time", {"timezone": "../../etc/passwd"}, "Unknown time zone"),
        ("parse_date", {"text": "soon"}, "not a date"),
        ("parse_date", {"text": "2026-02-30"}, "not a date"),
        ("parse_date", {"text": "03/01/2026"}, "3 January"),
        ("parse_date", {"text": "March 2026"}, "not a date"),
        ("parse_date", {"text": "9" * 5000}, "not a date"),
        ("add_duration", {"time": "2026-01-01", "years": 9000}, "years 1 to 9999"),
        ("date_difference", {"start": "2026-01-01T00:00Z", "end": "2026-01-02"}, "both or neither"),
        ("from_timestamp", {"timestamp": 1e300}, "years 1 to 9999"),
        (
            "convert_time",
            {"time": "0001-01-01T00:00", "from_timezone": "Tokyo", "to_timezone": "UTC"},
            "years 1 to 9999",
        ),
        (
            "convert_time",
            {"time": "0001-01-01T00:00+05:00", "from_timezone": "UTC", "to_timezone": "UTC"},
            "years 1 to 9999",
        ),
        (
            "convert_time",
            {"time": "9999-12-31T23:59-10:00", "from_timezone": "Tokyo", "to_timezone": "UTC"},
            "years 1 to 9999",
        ),
        ("month_calendar", {"year": 2026, "month": 13}, "12"),
    ],
)
async def test_a_time_that_makes_no_sense_is_refused(
    refused, tool: str, arguments: dict, fragment: str
) -> None:
    assert fragment in await refused("time", tool, **arguments)
