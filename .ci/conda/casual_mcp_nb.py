"""Write the recipe for conda-forge: `python .ci/conda/casual_mcp_nb.py dist/casual_mcp_nb-1.0.0.tar.gz`.

Everything in it comes from the source archive, so that nothing is said twice. It goes to
`conda-forge/staged-recipes` once, with that of casual-llm beside this file. After that, conda-forge's
bot opens the update for each release, and this prints what it must say.
"""

import hashlib
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement

NAMES = {
    "docstring-parser": "docstring_parser",
    "rank-bm25": "rank_bm25",
    # A package for every platform cannot need something on one of them, and 350 kB harm nobody.
    "tzdata": "python-tzdata",
}
"""What has another name on conda-forge than on PyPI."""


def main() -> None:
    recipe = recipe_of(Path(sys.argv[1]))
    yaml.safe_dump(recipe, sys.stdout, sort_keys=False, width=120)


def recipe_of(archive: Path) -> dict[str, Any]:
    """Return the recipe that builds a source archive.

    Args:
        archive: The archive as it is on PyPI, with its name from there.
    """
    stem = archive.name.removesuffix(".tar.gz")
    with tarfile.open(archive) as packed:
        member = packed.extractfile(f"{stem}/pyproject.toml")
        assert member is not None
        document = tomllib.loads(member.read().decode())
    project = document["project"]
    urls = project["urls"]
    owner = urls["Source"].split("/")[-2]
    source = f"https://pypi.org/packages/source/{stem[0]}/{project['name']}"
    file = stem.rpartition("-")[0]
    return {
        "schema_version": 1,
        "context": {
            "version": stem.rpartition("-")[2],
            "python_min": project["requires-python"].removeprefix(">="),
        },
        "package": {"name": project["name"], "version": "${{ version }}"},
        "source": {
            "url": f"{source}/{file}-${{{{ version }}}}.tar.gz",
            "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        },
        "build": {
            "number": 0,
            "noarch": "python",
            "script": "${{ PYTHON }} -m pip install . -vv --no-deps --no-build-isolation",
            "python": {
                "entry_points": [f"{name} = {place}" for name, place in project["scripts"].items()]
            },
        },
        "requirements": {
            "host": [
                "python ${{ python_min }}.*",
                "pip",
                *map(conda_name, document["build-system"]["requires"]),
            ],
            "run": ["python >=${{ python_min }}", *map(conda_name, project["dependencies"])],
        },
        "tests": [
            {
                "python": {
                    "imports": ["casual_mcp_nb"],
                    "pip_check": True,
                    "python_version": ["${{ python_min }}.*", "*"],
                }
            },
            {"script": ["casual-mcp-nb --help", "python -m casual_mcp_nb.bundled math --help"]},
        ],
        "about": {
            "homepage": urls["Homepage"],
            "repository": urls["Source"],
            "documentation": urls["Documentation"],
            "summary": project["description"],
            "license": project["license"],
            "license_file": project["license-files"],
        },
        "extra": {"recipe-maintainers": [owner]},
    }


def conda_name(requirement: str) -> str:
    """Return a requirement of PyPI in the words of conda-forge."""
    wanted = Requirement(requirement)
    # The lower bound first, as everywhere in the project.
    bounds = sorted(map(str, wanted.specifier), reverse=True)
    return f"{NAMES.get(wanted.name, wanted.name)} {','.join(bounds)}".strip()


if __name__ == "__main__":
    main()
