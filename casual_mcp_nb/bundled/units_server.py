"""The `units` server: convert between units of measure."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Field

from casual_mcp_nb.bundled._server import ToolError, ToolServer, closest, reads
from casual_mcp_nb.bundled._unit_table import EXACT, KINDS, UNITS, Unit

Kind = Literal["all", "length", "mass", "volume", "speed", "area", "data", "energy", "pressure", "time", "temperature"]


def build() -> ToolServer:
    """Build the server."""
    tools = reads(convert_units, convert_temperature, list_units)
    return ToolServer("units", f"Unit conversion: {', '.join(KINDS)}.", tools)


def convert_units(
    value: Annotated[float, Field(description="The number to convert", allow_inf_nan=False)],
    from_unit: Annotated[str, Field(description="Its unit: a symbol or name, such as 'km' or 'miles'")],
    to_unit: Annotated[str, Field(description="The unit to convert to, such as 'ft' or 'kilograms'")],
) -> dict[str, Any]:
    """Convert a value between units of measure.

    Knows length, mass, volume, speed, area, data, energy, pressure, time and temperature.
    """
    source, target = _unit(from_unit), _unit(to_unit)
    if source.kind != target.kind:
        same_kind = ", ".join(unit.symbol for unit in UNITS if unit.kind == source.kind)
        raise ToolError(
            f"{from_unit[:40]!r} is a unit of {source.kind} and {to_unit[:40]!r} of {target.kind}. "
            f"Valid for {source.kind}: {same_kind}."
        )
    result = _converted(value, source, target)
    summary = f"{in_figures(value)} {source.symbol} is {in_figures(result)} {target.symbol}."
    return {"summary": summary, "result": result, "unit": target.symbol, "kind": target.kind}


def in_figures(value: float) -> str:
    """Format a number for people: whole numbers in full (5,368,709,120), others with their significant digits."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.6f}".rstrip("0") if 1e4 <= abs(value) < 1e12 else f"{value:.6g}"


def convert_temperature(
    value: Annotated[float, Field(description="The temperature to convert", allow_inf_nan=False)],
    from_unit: Annotated[Literal["celsius", "fahrenheit", "kelvin"], Field(description="Its scale")],
    to_unit: Annotated[Literal["celsius", "fahrenheit", "kelvin"], Field(description="The scale to convert to")],
) -> dict[str, Any]:
    """Convert a temperature between Celsius, Fahrenheit and Kelvin."""
    return convert_units(value, from_unit, to_unit)


def list_units(
    kind: Annotated[Kind, Field(description="The kind of measure, or all")] = "all",
) -> dict[str, list[str]]:
    """List the units that can be converted, by kind of measure."""
    return {
        name: [f"{unit.symbol} ({unit.names[0]})" for unit in UNITS if unit.kind == name]
        for name in KINDS
        if kind in ("all", name)
    }


def _unit(name: str) -> Unit:
    wanted = name.strip().replace(" ", "_")
    if wanted in EXACT:
        return EXACT[wanted]
    # Some units differ only in case (MB, Mb), so a name in another case must still be unambiguous.
    units = {unit for spelling, unit in EXACT.items() if spelling.casefold() == wanted.casefold()}
    if len(units) == 1:
        return units.pop()
    if units:
        raise ToolError(f"{name!r} is ambiguous: {', '.join(sorted(unit.symbol for unit in units))}.")
    raise ToolError(f"Unknown unit {name[:40]!r}. {closest(wanted, list(EXACT))} list_units shows all.")


def _converted(value: float, source: Unit, target: Unit) -> float:
    base = value * source.factor + source.offset
    if source.kind == "temperature" and base < -1e-9:
        raise ToolError("The temperature is below absolute zero (-273.15 °C).")
    result = (base - target.offset) / target.factor
    if not math.isfinite(result):
        raise ToolError("The result is too large.")
    # Twelve digits: anything beyond is rounding noise of the factors.
    return float(f"{result:.12g}")
