"""Time zones by the names people use."""

from __future__ import annotations

from functools import cache
from zoneinfo import available_timezones

# The first region wins if two have a city of the same name; aliases such as US/Eastern come last.
_REGIONS = ("Europe", "America", "Asia", "Africa", "Australia", "Pacific", "Atlantic", "Indian", "Antarctica", "Arctic")
_ORDINARY_WORDS = """
acre casey center central currie davis east easter eastern factory general local mountain nome north pacific reunion south troll
universal west western yukon zulu
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
    ordinary = _ORDINARY_WORDS.split()
    zones: dict[str, str] = {}
    for zone in sorted(available_timezones(), key=lambda zone: (_rank(zone), zone), reverse=True):
        city = zone.rpartition("/")[2].replace("_", " ").casefold()
        if city not in ordinary and len(city) > 2:
            zones[city] = zone
        zones[zone.casefold()] = zone
    for zone, cities in _OTHER_CITIES.items():
        zones.update((city.replace("_", " "), zone) for city in cities.split())
    return zones


def _rank(zone: str) -> int:
    region = zone.partition("/")[0]
    return _REGIONS.index(region) if region in _REGIONS and "/" in zone else len(_REGIONS)
