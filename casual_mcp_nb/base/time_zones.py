"""Time zones by the names people use."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from zoneinfo import available_timezones

_OTHER_CITIES = """
Asia/Kolkata bangalore delhi mumbai; Asia/Shanghai beijing; Asia/Tokyo kyoto osaka;
America/Los_Angeles san_francisco seattle; America/New_York boston miami washington;
Europe/Berlin frankfurt hamburg munich; Europe/Madrid barcelona; Europe/Rome milan;
Europe/Zurich geneva; UTC gmt utc z
"""


@cache
def zones_by_name() -> Mapping[str, str]:
    """List the time zones that this system knows by name and by city, casefolded, with spaces in
    city names.
    """
    names = sorted(available_timezones(), reverse=True)
    # If zones share a city name, the first wins; aliases such as US/Eastern come last.
    zones = {name.rpartition("/")[2].replace("_", " ").casefold(): name for name in names}
    for name in names:
        zones[name.casefold()] = name
    for zone, *cities in map(str.split, _OTHER_CITIES.split(";")):
        for city in cities:
            zones[city.replace("_", " ")] = zone
    return zones
