"""Time zones by the names people use."""

from __future__ import annotations

from functools import cache
from zoneinfo import available_timezones

_ORDINARY_WORDS = """
acre casey center central currie davis east easter eastern factory gb general local mountain nome north pacific reunion south
troll universal west western yukon zulu
"""
_OTHER_CITIES = {
    "Asia/Kolkata": "bangalore delhi mumbai",
    "Asia/Shanghai": "beijing",
    "Asia/Tokyo": "kyoto osaka",
    "America/Los_Angeles": "san_francisco seattle",
    "America/New_York": "boston miami washington",
    "Europe/Berlin": "frankfurt hamburg munich",
    "Europe/Madrid": "barcelona",
    "Europe/Rome": "milan",
    "Europe/Zurich": "geneva",
    "UTC": "gmt utc",
}


@cache
def zones_by_name() -> dict[str, str]:
    """Return zones by full name and by city, casefolded, with spaces instead of underscores in cities."""
    zones = {zone.casefold(): zone for zone in available_timezones()}
    # Of zones with a city of the same name, the first wins; aliases such as US/Eastern come last.
    cities = {_city(zone): zone for zone in sorted(available_timezones(), reverse=True)}
    zones |= {city: zone for city, zone in cities.items() if city not in _ORDINARY_WORDS.split() and len(city) > 1}
    return zones | {city.replace("_", " "): zone for zone, names in _OTHER_CITIES.items() for city in names.split()}


def _city(zone: str) -> str:
    return zone.rpartition("/")[2].replace("_", " ").casefold()
