"""List what is public, and say what breaks: `python .ci/surface` writes `docs/surface/next.txt`.

It has one line for each name, sorted, so that a diff shows what a change adds, removes or alters
for those who use the package. `--check` fails, and writes nothing, if the file is not what there is
now, or if something that the last release had is gone without having been announced. `--release`
keeps the list for the version that is being released, as the one that the next are compared with.

`docs/stability.md` says what is promised. It needs the extras and the dependency group `docs`, as
`.venv` has them.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import changes
import interfaces
import python_names

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "surface"
NEXT = FOLDER / "next.txt"
COMMAND = "python .ci/surface"
DEPRECATED: Mapping[str, str] = {}
"""What will go: its name in the list, such as `casual_mcp_nb.Session.search`, and the minor release
that began to warn, such as `1.1`.
"""
HEAD = f"What is public. `{COMMAND}` writes this file, and docs/stability.md explains it."


def surface() -> dict[str, dict[str, str]]:
    """List everything that is public, by area, with marks on what will go.

    A release keeps the marks, which is how the next one may remove what has them.

    Raises:
        SystemExit: A deprecated name is not public, or not any more.
    """
    found = {
        "Python": dict(python_names.public_names()),
        "Of a session": dict(python_names.names_of_a_session()),
        "Returned by a session": dict(python_names.returned_values()),
    }
    for area, names in interfaces.AREAS.items():
        found[area] = dict(names())
    places = {name: names for names in found.values() for name in names}
    for name, since in DEPRECATED.items():
        if name not in places:
            raise SystemExit(f"DEPRECATED: {name} is not public, or not any more.")
        places[name][name] += f" [deprecated since {since}]"
    return found


def version() -> str:
    """Read the version of the package."""
    text = (ROOT / "casual_mcp_nb" / "__init__.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "([^"]+)"', text, re.MULTILINE)
    assert match is not None
    return match[1]


def problems(now: changes.Surface) -> list[str]:
    """Say what differs from the committed list, and what breaks since the last release."""
    before = NEXT.read_text(encoding="utf-8") if NEXT.exists() else ""
    difference = difflib.unified_diff(
        before.splitlines(), changes.written(now, HEAD).splitlines(), lineterm="", n=0
    )
    # Without the names of the two files, and without places.
    found = [line for line in list(difference)[2:] if not line.startswith("@@")]
    if found:
        found.append(f"What is public has changed. If that is meant: {COMMAND}")
    release = changes.last_release(FOLDER)
    if release is not None:
        name, released = release
        breaking = changes.breaks(released, now, version())
        found += map(str, breaking)
        if breaking:
            found.append(f"This breaks what {name} had. docs/stability.md says how to announce it.")
    return found


def main() -> int:
    """Write the list, check it, or keep it for a release."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="List what is public.")
    parser.add_argument("--check", action="store_true", help="write nothing, say what is wrong")
    parser.add_argument("--release", action="store_true", help="keep it for this version")
    options = parser.parse_args()
    now = surface()
    if options.check or options.release:
        found = problems(now)
        for line in found:
            print(line)
        if found:
            return 1
    if not options.check:
        FOLDER.mkdir(exist_ok=True)
        NEXT.write_text(changes.written(now, HEAD), encoding="utf-8")
        print(NEXT.relative_to(ROOT))
    if options.release:
        kept = FOLDER / f"{version()}.txt"
        kept.write_text(NEXT.read_text(encoding="utf-8"), encoding="utf-8")
        print(kept.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
