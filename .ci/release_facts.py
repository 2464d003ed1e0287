"""Stop a release that does not say one thing everywhere: `python .ci/release_facts.py OWNER/NAME v1.0.0`.

It is published only from the repository that pyproject.toml names, with the version of the package
as its tag, and with its date in the changelog and in the citation.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def problems(repository: str, tag: str, root: Path = ROOT) -> list[str]:
    """Say what does not agree.

    Args:
        repository: Where this runs, `OWNER/NAME`.
        tag: The tag that is released.
        root: The source tree.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    source = project["project"]["urls"]["Source"]
    text = (root / project["tool"]["hatch"]["version"]["path"]).read_text(encoding="utf-8")
    version = re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)[0]
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    dated = re.search(rf"^## {re.escape(version)} - (\d{{4}}-\d\d-\d\d)$", changelog, re.MULTILINE)
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    found = []
    if source != f"https://github.com/{repository}":
        found.append(f"pyproject.toml names {source} as the repository; this is {repository}.")
    if tag != f"v{version}":
        found.append(f"The tag is {tag}; the package's version is {version}.")
    if dated is None:
        found.append(f"CHANGELOG.md has no date for {version}: ## {version} - YYYY-MM-DD")
    elif f"date-released: {dated[1]}\n" not in citation:
        found.append(f"CITATION.cff does not say: date-released: {dated[1]}")
    if f"version: {version}\n" not in citation:
        found.append(f"CITATION.cff does not say: version: {version}")
    return found


if __name__ == "__main__":
    if found := problems(*sys.argv[1:]):
        sys.exit("Nothing is released.\n" + "\n".join(found))
