"""The `units` server: convert between units of measure, through pint."""

from __future__ import annotations

import math
import re
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from casual_mcp_nb.bundled._server import FunctionServer, reads

if TYPE_CHECKING:
    from pint import Unit, UnitRegistry

Kind = Literal[
    "all",
    "length",
    "mass",
    "volume",
    "speed",
    "area",
    "data",
    "energy",
    "pressure",
    "time",
    "temperature",
]
UnitName = Annotated[str, Field(max_length=100)]

_LISTED = {
    "length": "m km dm cm mm um nm inch ft yd mi nmi ly",
    "mass": "kg g mg ug t lb oz stone short_ton",
    "volume": "l ml cl dl m^3 gal imp_gal qt pt cup fl_oz tbsp tsp",
    "speed": "m/s km/h mph kn ft/s",
    "area": "m^2 km^2 cm^2 ha acre ft^2 in^2 mi^2",
    "data": "B bit kB MB GB TB PB KiB MiB GiB TiB kbit Mbit Gbit",
    "energy": "J kJ MJ cal kcal Wh kWh eV BTU",
    "pressure": "Pa hPa kPa bar atm psi mmHg",
    "time": "s ms us min h d week year",
    "temperature": "K C F",
}
"""The units that list_units shows; pint knows a thousand more."""

_EVERYDAY = {
    **dict.fromkeys(
        ("C", "c", "°C", "°c", "centigrade", "degc", "degrees_celsius", "degrees_centigrade"),
        "degC",
    ),
    **dict.fromkeys(("F", "f", "°F", "°f", "degf", "degrees_fahrenheit"), "degF"),
    "b": "bit",
    "kb": "kbit",
    "Mb": "Mbit",
    "Gb": "Gbit",
    "Tb": "Tbit",
    "M": "m",
    "cc": "ml",
    "st": "stone",
    "sec": "s",
    "mi/h": "mph",
    "fps": "ft/s",
    "kmh": "km/h",
    "mps": "m/s",
    "sqft": "ft^2",
    "BTU": "Btu_it",
    "btu": "Btu_it",
    "kilo": "kg",
    "kilos": "kg",
    "us_ton": "short_ton",
    "us_tons": "short_ton",
    "us_gallon": "gal",
    "us_gallons": "gal",
    "imp_gal": "imperial_gallon",
    "fl_oz": "fluid_ounce",
    "lightyear": "light_year",
    "julian_year": "year",
    "pounds_per_square_inch": "psi",
    "millimeters_of_mercury": "mmHg",
    "millimetres_of_mercury": "mmHg",
    "gb": "",
    "mb": "",
}
"""Everyday names that pint does not know, or reads as something rare: a coulomb, a barn, a gilbert.

Empty: ambiguous.
"""

_TERM = re.compile(r"(?P<name>[^\W\d]\w*?|°[CF])(?:(?:\^|\*\*)?(?P<power>-?[1-9]))?", re.ASCII)
_SUPERSCRIPTS = str.maketrans({"²": "^2", "³": "^3", "µ": "u", "μ": "u", "·": "*"})
_MAX_TERMS = 8


def build() -> FunctionServer:
    """Build the server."""
    tools = reads(convert_units, convert_temperature, list_units)
    return FunctionServer(
        "units", f"Unit conversion: {', '.join(_LISTED)}, and whatever else has units.", tools
    )


def convert_units(
    value: Annotated[float, Field(description="The number to convert", allow_inf_nan=False)],
    from_unit: Annotated[
        UnitName, Field(description="Its unit: a symbol or name, such as 'km', 'miles' or 'kg/m^3'")
    ],
    to_unit: Annotated[
        UnitName, Field(description="The unit to convert to, such as 'ft' or 'kilograms'")
    ],
) -> dict[str, Any]:
    """Convert a value between units of measure.

    Knows length, mass, volume, speed, area, data, energy, pressure, time and temperature, and
    others such as force and power.
    """
    from pint import DimensionalityError, PintError

    source, target = _unit(from_unit), _unit(to_unit)
    try:
        quantity = _registry().Quantity(value, source)
        if source.is_compatible_with("kelvin") and quantity.to("kelvin").magnitude < -1e-9:
            raise ToolError("The temperature is below absolute zero (-273.15 °C).")
        result = None
        if _bits(source) == _bits(target):
            result = quantity.to(target).magnitude
    except DimensionalityError:
        result = None
    except (PintError, ArithmeticError) as error:
        raise ToolError(f"Cannot be converted: {str(error)[:200]}") from error
    if result is None:
        kind = _kind(source)
        valid = f" Valid for {kind}: {', '.join(_LISTED[kind].split())}." if kind else ""
        raise ToolError(
            f"{from_unit[:40]!r} is a unit of {kind or source.dimensionality} and {to_unit[:40]!r}"
            f" of {_kind(target) or target.dimensionality}.{valid}"
        )
    if not math.isfinite(result):
        raise ToolError("The result is too large.")
    # Twelve digits: anything beyond is rounding noise in the factors.
    result = float(f"{result:.12g}")
    summary = f"{in_figures(value)} {source:~P} is {in_figures(result)} {target:~P}."
    return {"summary": summary, "result": result, "unit": f"{target:~P}", "kind": _kind(target)}


def in_figures(value: float) -> str:
    """Format a number for people: whole numbers in full (5,368,709,120), others with their
    significant digits.
    """
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if 1e4 <= abs(value) < 1e12:
        return f"{value:,.6f}".rstrip("0")
    return f"{value:.6g}"


def convert_temperature(
    value: Annotated[float, Field(description="The temperature to convert", allow_inf_nan=False)],
    from_unit: Annotated[
        Literal["celsius", "fahrenheit", "kelvin"], Field(description="Its scale")
    ],
    to_unit: Annotated[
        Literal["celsius", "fahrenheit", "kelvin"], Field(description="The scale to convert to")
    ],
) -> dict[str, Any]:
    """Convert a temperature between Celsius, Fahrenheit and Kelvin."""
    return convert_units(value, from_unit, to_unit)


def list_units(
    kind: Annotated[Kind, Field(description="The kind of measure, or all")] = "all",
) -> dict[str, list[str]]:
    """List common units that can be converted, by kind of measure."""
    units = {}
    for name in _LISTED if kind == "all" else [kind]:
        units[name] = [f"{symbol} ({_unit(symbol)})" for symbol in _LISTED[name].split()]
    return units


@cache
def _registry() -> UnitRegistry[Any]:
    """Load pint's units.

    The import takes longer than starting a server, so it waits for the first conversion.
    """
    from pint import UnitRegistry

    # Without pint's cache on disk: it names files of the environment that wrote it, and fails once
    # that has gone.
    return UnitRegistry()


def _unit(text: str) -> Unit:
    """Parse a product of named units.

    The text never reaches pint's own parser, which evaluates expressions.
    """
    from pint.util import UnitsContainer

    whole = _EVERYDAY.get(text.strip().replace(" ", "_"), "")
    terms: dict[str, float] = {}
    for part, sign in _parts(whole or text):
        match = _TERM.fullmatch(part)
        if match is None or len(terms) == _MAX_TERMS:
            raise ToolError(
                f"Unknown unit {text[:40]!r}. Write it like 'km', 'm^2', 'km/h' or 'kg*m/s^2'."
            )
        name = _name(match["name"])
        terms[name] = terms.get(name, 0) + sign * int(match["power"] or 1)
    return _registry().Unit(UnitsContainer(terms))


def _parts(text: str) -> list[tuple[str, int]]:
    """Split a unit into its terms, each with 1 or -1 for above or below the line."""
    words = " ".join(text.translate(_SUPERSCRIPTS).split())
    words = re.sub(r"[ _]per[ _]", "/", words)
    words = re.sub(r"\b(square|sq)[ _](\w+)", r"\2^2", words)
    words = re.sub(r"\b(cubic)[ _](\w+)", r"\2^3", words)
    words = re.sub(r"_?\s*/\s*_?", " / ", words).replace("**", "^").replace("*", " * ")
    parts, sign = [], 1
    for word in re.split(r" ([*/]) ", words):
        if word == "/":
            sign = -1
        elif word != "*":
            parts.append((word.strip().replace(" ", "_"), sign))
    return parts


def _name(written: str) -> str:
    """Find pint's name for a unit; a name in another case must still be unambiguous."""
    registry = _registry()
    name = _EVERYDAY.get(written, written)
    if not name:
        raise ToolError(f"{written!r} is ambiguous: write Mbit or MB, Gbit or GB.")
    spellings = (name, name.lower(), name.upper(), name.capitalize(), name[0].lower() + name[1:])
    for spelling in spellings:
        if matches := registry.parse_unit_name(spelling):
            prefix, unit, _ = matches[0]
            return f"{prefix}{unit}"
    close = get_close_matches(written[:100], dir(registry), n=3, cutoff=0.75)
    hint = f"Closest: {', '.join(close)}. " if close else ""
    raise ToolError(f"Unknown unit {written[:40]!r}. {hint}list_units shows common ones.")


def _bits(unit: Unit) -> float:
    # To pint, bits have no dimension: without this, bytes would convert to radians.
    from pint.util import to_units_container

    root = to_units_container(_registry().get_root_units(unit)[1])
    return float(str(root.get("bit", 0)))


def _kind(unit: Unit) -> str | None:
    for kind, symbols in _LISTED.items():
        example = _unit(symbols.split()[0])
        if example.dimensionality == unit.dimensionality and _bits(example) == _bits(unit):
            return kind
    return None
