"""Time zones as people name them."""

from __future__ import annotations

from functools import cache
from zoneinfo import available_timezones

from casual_mcp_nb.providers._planner.words import words_of

# The first region wins where two have a city of the same name; links such as US/Eastern come last.
_REGIONS = ("Europe", "America", "Asia", "Africa", "Australia", "Pacific", "Atlantic", "Indian", "Antarctica", "Arctic")
_ORDINARY_WORDS = frozenset(
    words_of(
        "acre casey center central currie davis east easter eastern factory general local mountain nome north pacific "
        "reunion south troll universal west western yukon zulu"
    )
)
_OTHER_CITIES = {
    "bangalore": "Asia/Kolkata",
    "barcelona": "Europe/Madrid",
    "beijing": "Asia/Shanghai",
    "boston": "America/New_York",
    "delhi": "Asia/Kolkata",
    "frankfurt": "Europe/Berlin",
    "geneva": "Europe/Zurich",
    "hamburg": "Europe/Berlin",
    "kyoto": "Asia/Tokyo",
    "miami": "America/New_York",
    "milan": "Europe/Rome",
    "mumbai": "Asia/Kolkata",
    "munich": "Europe/Berlin",
    "osaka": "Asia/Tokyo",
    "san francisco": "America/Los_Angeles",
    "seattle": "America/Los_Angeles",
    "washington": "America/New_York",
    "gmt": "UTC",
    "utc": "UTC",
}


@cache
def zones_by_name() -> dict[str, str]:
    """Zone names by full name and by city, both casefolded, with spaces for underscores in cities."""
    found: dict[str, str] = {}
    for zone in sorted(available_timezones(), key=lambda zone: (_rank(zone), zone), reverse=True):
        city = zone.rpartition("/")[2].replace("_", " ").casefold()
        if city not in _ORDINARY_WORDS and len(city) > 2:
            found[city] = zone
        found[zone.casefold()] = zone
    return {**found, **_OTHER_CITIES}


def _rank(zone: str) -> int:
    region = zone.partition("/")[0]
    return _REGIONS.index(region) if region in _REGIONS and "/" in zone else len(_REGIONS)
