"""The README as the package index shows it: what it links is in the repository, at the release.

Hatchling calls this when it builds a wheel or a source archive.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)]+)\)")


def absolute(text: str, repository: str, version: str) -> str:
    """Give the relative links and pictures of a Markdown text the address of their file.

    Args:
        text: The Markdown.
        repository: The address of the repository on its host.
        version: The release whose tag they point to.
    """

    def address(match: re.Match[str]) -> str:
        picture, title, path = match.groups()
        kind = "raw" if picture else "blob"
        return f"{picture}[{title}]({repository}/{kind}/v{version}/{path})"

    return LINK.sub(address, text)


def version_of(root: Path) -> str:
    """Read the version from the file that pyproject.toml names."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    source = (root / project["tool"]["hatch"]["version"]["path"]).read_text(encoding="utf-8")
    return re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE)[0]


class ReadmeHook(MetadataHookInterface):
    """Sets the project's readme."""

    def update(self, metadata: dict[str, Any]) -> None:
        root = Path(self.root)
        text = (root / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": absolute(text, metadata["urls"]["Source"], version_of(root)),
        }
