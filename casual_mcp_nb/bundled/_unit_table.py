"""Units of measurement: their names and their size in the base unit of their kind."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

_INCH = 0.0254
_MILE = 1609.344
_POUND = 0.45359237
_GALLON = 3.785411784


class Unit(NamedTuple):
    """A unit: `value_in_base = value * factor + offset`."""

    symbol: str
    kind: str
    factor: float
    offset: float
    names: tuple[str, ...]


# One line for each unit: symbol, factor, names. The first unit of a kind is its base.
_TABLE: Mapping[str, tuple[tuple[str, float, str], ...]] = {
    "length": (
        ("m", 1, "meter metre meters metres"),
        ("km", 1000, "kilometer kilometre kilometers kilometres"),
        ("dm", 0.1, "decimeter decimetre decimeters decimetres"),
        ("cm", 0.01, "centimeter centimetre centimeters centimetres"),
        ("mm", 0.001, "millimeter millimetre millimeters millimetres"),
        ("um", 1e-6, "micrometer micrometre micrometers micrometres µm micron microns"),
        ("nm", 1e-9, "nanometer nanometre nanometers nanometres"),
        ("in", _INCH, "inch inches"),
        ("ft", _INCH * 12, "foot feet"),
        ("yd", _INCH * 36, "yard yards"),
        ("mi", _MILE, "mile miles"),
        ("nmi", 1852, "nautical_mile nautical_miles"),
        ("ly", 9.4607304725808e15, "light_year light_years lightyear"),
    ),
    "mass": (
        ("kg", 1, "kilogram kilograms kilo kilos"),
        ("g", 0.001, "gram grams"),
        ("mg", 1e-6, "milligram milligrams"),
        ("ug", 1e-9, "microgram micrograms µg"),
        ("t", 1000, "tonne tonnes metric_ton metric_tons"),
        ("lb", _POUND, "pound pounds lbs"),
        ("oz", _POUND / 16, "ounce ounces"),
        ("st", _POUND * 14, "stone stones"),
        ("short_ton", _POUND * 2000, "short_tons us_ton us_tons"),
    ),
    "volume": (
        ("l", 1, "liter litre liters litres"),
        ("ml", 0.001, "milliliter millilitre milliliters millilitres cc cm3"),
        ("cl", 0.01, "centiliter centilitre centiliters centilitres"),
        ("dl", 0.1, "deciliter decilitre deciliters decilitres"),
        ("m3", 1000, "cubic_meter cubic_metre cubic_meters cubic_metres m³"),
        ("gal", _GALLON, "gallon gallons us_gallon us_gallons"),
        ("imp_gal", 4.54609, "imperial_gallon imperial_gallons"),
        ("qt", _GALLON / 4, "quart quarts"),
        ("pt", _GALLON / 8, "pint pints"),
        ("cup", _GALLON / 16, "cups"),
        ("fl_oz", _GALLON / 128, "fluid_ounce fluid_ounces"),
        ("tbsp", _GALLON / 256, "tablespoon tablespoons"),
        ("tsp", _GALLON / 768, "teaspoon teaspoons"),
    ),
    "speed": (
        ("m/s", 1, "mps meters_per_second metres_per_second"),
        ("km/h", 1 / 3.6, "kmh kph kilometers_per_hour kilometres_per_hour"),
        ("mph", _MILE / 3600, "mi/h miles_per_hour"),
        ("kn", 1852 / 3600, "knot knots"),
        ("ft/s", _INCH * 12, "fps feet_per_second"),
    ),
    "area": (
        ("m2", 1, "square_meter square_metre square_meters square_metres m²"),
        ("km2", 1e6, "square_kilometer square_kilometre square_kilometers square_kilometres km²"),
        ("cm2", 1e-4, "square_centimeter square_centimetre square_centimeters square_centimetres cm²"),
        ("ha", 1e4, "hectare hectares"),
        ("acre", _MILE**2 / 640, "acres"),
        ("ft2", (_INCH * 12) ** 2, "square_foot square_feet sqft"),
        ("in2", _INCH**2, "square_inch square_inches"),
        ("mi2", _MILE**2, "square_mile square_miles"),
    ),
    "data": (
        ("B", 1, "byte bytes"),
        ("bit", 0.125, "bits b"),
        ("kB", 1e3, "kilobyte kilobytes"),
        ("MB", 1e6, "megabyte megabytes"),
        ("GB", 1e9, "gigabyte gigabytes"),
        ("TB", 1e12, "terabyte terabytes"),
        ("PB", 1e15, "petabyte petabytes"),
        ("KiB", 2**10, "kibibyte kibibytes"),
        ("MiB", 2**20, "mebibyte mebibytes"),
        ("GiB", 2**30, "gibibyte gibibytes"),
        ("TiB", 2**40, "tebibyte tebibytes"),
        ("kbit", 125, "kilobit kilobits"),
        ("Mbit", 125e3, "megabit megabits Mb"),
        ("Gbit", 125e6, "gigabit gigabits Gb"),
    ),
    "energy": (
        ("J", 1, "joule joules"),
        ("kJ", 1e3, "kilojoule kilojoules"),
        ("MJ", 1e6, "megajoule megajoules"),
        ("cal", 4.184, "calorie calories"),
        ("kcal", 4184, "kilocalorie kilocalories"),
        ("Wh", 3600, "watt_hour watt_hours"),
        ("kWh", 3.6e6, "kilowatt_hour kilowatt_hours"),
        ("eV", 1.602176634e-19, "electronvolt electronvolts"),
        ("BTU", 1055.05585262, "british_thermal_unit british_thermal_units"),
    ),
    "pressure": (
        ("Pa", 1, "pascal pascals"),
        ("hPa", 100, "hectopascal hectopascals mbar millibar"),
        ("kPa", 1e3, "kilopascal kilopascals"),
        ("bar", 1e5, "bars"),
        ("atm", 101325, "atmosphere atmospheres"),
        ("psi", 6894.757293168361, "pounds_per_square_inch"),
        ("mmHg", 133.322387415, "millimeters_of_mercury millimetres_of_mercury"),
    ),
    "time": (
        ("s", 1, "second seconds sec"),
        ("ms", 1e-3, "millisecond milliseconds"),
        ("us", 1e-6, "microsecond microseconds µs"),
        ("min", 60, "minute minutes"),
        ("h", 3600, "hour hours hr"),
        ("d", 86400, "day days"),
        ("week", 604800, "weeks"),
        ("year", 31557600, "years julian_year"),
    ),
}
_TEMPERATURES = (
    Unit("K", "temperature", 1, 0, ("kelvin", "kelvins")),
    Unit("C", "temperature", 1, 273.15, ("celsius", "centigrade", "°c", "degc", "degrees_celsius")),
    Unit("F", "temperature", 5 / 9, 459.67 * 5 / 9, ("fahrenheit", "°f", "degf", "degrees_fahrenheit")),
)

UNITS: tuple[Unit, ...] = (
    *(Unit(symbol, kind, factor, 0, tuple(names.split())) for kind, rows in _TABLE.items() for symbol, factor, names in rows),
    *_TEMPERATURES,
)
KINDS: tuple[str, ...] = (*_TABLE, "temperature")

EXACT: Mapping[str, Unit] = MappingProxyType({name: unit for unit in UNITS for name in (unit.symbol, *unit.names)})
