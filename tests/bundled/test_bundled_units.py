from __future__ import annotations

import pytest

from casual_mcp_nb.bundled.units_server import convert_units


@pytest.mark.parametrize(
    ("value", "source", "target", "expected"),
    [
        (1, "mile", "km", 1.609344),
        (5, "kilograms", "lb", 11.0231131092),
        (100, "C", "F", 212),
        (0, "kelvin", "celsius", -273.15),
        (1, "GiB", "MB", 1073.741824),
        (8, "Mb", "MB", 1),
        (1, "hectare", "m2", 10000),
        (1, "kWh", "MJ", 3.6),
        (1, "atm", "hPa", 1013.25),
        (2, "weeks", "HOURS", 336),
        (1, "us gallon", "l", 3.785411784),
        (90, "km/h", "m/s", 25),
        (1, "square metres", "ft2", 10.7639104167),
        (1, "kg*m/s^2", "N", 1),
        (60, "miles per hour", "kmh", 96.56064),
        (20, "degrees celsius", "f", 68),
        (1, "m³", "imperial gallons", 219.96924829909),
        (1, "KM", "M", 1000),
    ],
)
async def test_a_value_is_converted(
    call, value: float, source: str, target: str, expected: float
) -> None:
    result = await call("units", "convert_units", value=value, from_unit=source, to_unit=target)

    assert result["result"] == pytest.approx(expected, rel=1e-10)


async def test_temperatures_have_a_tool_of_their_own(call) -> None:
    result = await call(
        "units", "convert_temperature", value=98.6, from_unit="fahrenheit", to_unit="celsius"
    )

    assert result == {
        "summary": "98.6 °F is 37 °C.",
        "result": 37.0,
        "unit": "°C",
        "kind": "temperature",
    }


async def test_the_units_are_listed_by_kind(call) -> None:
    assert len(await call("units", "list_units")) == 10
    assert list(await call("units", "list_units", kind="speed")) == ["speed"]


@pytest.mark.parametrize(
    ("source", "target", "fragment"),
    [
        ("kilometr", "m", "kilometer"),
        ("km", "kg", "Valid for length: m, km"),
        ("gb", "MB", "ambiguous"),
        ("zzzzzz", "m", "list_units"),
        ("", "m", "Unknown unit"),
        ("B", "rad", "unit of data"),
        ("m**10**10**10", "m", "Unknown unit"),
        ("m^99999", "m", "Unknown unit"),
        ("1e308*m", "m", "Unknown unit"),
        ("m/s/kg/A/K/mol/cd/B/bit/J/N/W", "m", "Unknown unit"),
        ("degC*m", "K*m", "temperature"),
        ("__import__('os').getcwd()", "m", "Unknown unit"),
        ("m" * 101, "m", "100"),
    ],
)
async def test_a_wrong_unit_is_answered_with_valid_ones(
    refused, source: str, target: str, fragment: str
) -> None:
    assert fragment in await refused(
        "units", "convert_units", value=1, from_unit=source, to_unit=target
    )


async def test_there_is_nothing_below_absolute_zero(refused) -> None:
    assert "absolute zero" in await refused(
        "units", "convert_units", value=-300, from_unit="C", to_unit="F"
    )


@pytest.mark.defect("C15")
@pytest.mark.parametrize(
    ("value", "source", "target", "words"),
    [
        (5, "GiB", "B", "5 GiB is 5,368,709,120 B."),
        (1234567, "m", "km", "1,234,567 m is 1234.57 km."),
        (123456.789, "km", "m", "123,456.789 km is 123,456,789 m."),
        (26.2, "miles", "kilometres", "26.2 mi is 42.1648 km."),
    ],
)
def test_whole_numbers_are_said_whole(value: float, source: str, target: str, words: str) -> None:
    assert convert_units(value, source, target)["summary"] == words
