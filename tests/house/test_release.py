"""What is released: the archives, the same bytes each time, and what they say about themselves."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.release_tools import run_tool
from packaging.requirements import Requirement

import casual_mcp_nb

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SOURCE = PROJECT["urls"]["Source"]
STATIC = ROOT / "casual_mcp_nb" / "widgets" / "static"

VALID_SBOM = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read())
sys.exit(str(error) if error else 0)
"""

RENDERED = """
import json, sys
from rattler_build import Stage0Recipe, VariantConfig

recipe = Stage0Recipe.from_file(sys.argv[1])
(made,) = recipe.render(VariantConfig.from_yaml("python_min: ['3.11']"))
print(json.dumps(made.recipe.to_dict()))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the archives of what git knows, changes included, after two equal builds."""
    pytest.importorskip("hatchling", reason="the dependency group dev brings it")
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone, so there is no commit to build")
    folder = tmp_path_factory.mktemp("built")
    stash = ["git", "stash", "create"]
    changed = subprocess.run(stash, cwd=ROOT, capture_output=True, text=True, timeout=60).stdout
    commit = changed.strip() or "HEAD"
    command = [sys.executable, ROOT / ".ci" / "build.py", "--twice", "--folder", folder]
    command += ["--commit", commit]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (file,) = built.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def archive(built: Path) -> Path:
    (file,) = built.glob("*.tar.gz")
    return file


def test_two_builds_are_equal_and_so_is_the_wheel_that_the_source_archive_builds(
    wheel: Path, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Early releases of 3.11 have no filters.
    options: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, **options)
        times = {member.mtime for member in packed}
    (tree,) = tmp_path.iterdir()
    (time,) = times
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(time))
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "wheel"]
    subprocess.run(command, cwd=tree, check=True, capture_output=True, timeout=60)
    assert (tmp_path / "wheel" / wheel.name).read_bytes() == wheel.read_bytes()


def test_a_folder_with_something_in_it_is_no_place_for_a_release(tmp_path: Path) -> None:
    (tmp_path / "casual_mcp_nb-0.0.1.tar.gz").touch()
    command = [sys.executable, ROOT / ".ci" / "build.py", "--folder", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "is not empty" in done.stderr


def test_the_metadata_say_who_where_and_for_what(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        (name,) = [each for each in packed.namelist() if each.endswith(".dist-info/METADATA")]
        told = HeaderParser().parsestr(packed.read(name).decode())
    urls = dict(each.split(", ", 1) for each in told.get_all("Project-URL", []))
    assert urls == PROJECT["urls"]
    assert {"Homepage", "Documentation", "Changelog", "Issues", "Source"} <= urls.keys()
    assert told["Author"] in (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert told["License-Expression"] == "MIT"
    assert "Development Status :: 5 - Production/Stable" in told.get_all("Classifier", [])
    # Whoever reads it on an index can follow its links and see its pictures.
    targets = re.findall(r"\]\(([^)]+)\)", str(told.get_payload()))
    assert len(targets) > 30
    assert [each for each in targets if not each.startswith("https://")] == []
    release = f"{SOURCE}/raw/v{casual_mcp_nb.__version__}/docs/images/turn.svg"
    assert release in targets


def test_links_of_the_readme_point_to_files_that_are_there() -> None:
    absolute = runpy.run_path(str(ROOT / ".ci" / "readme.py"))["absolute"]
    text = absolute((ROOT / "README.md").read_text(encoding="utf-8"), "https://host/us", "1.0.0")
    paths = re.findall(r"\]\(https://host/us/(?:blob|raw)/v1\.0\.0/([^)#]+)", text)
    assert [path for path in paths if not (ROOT / path).exists()] == []
    kept = "[a](https://example.com) [b](#next) ![c](https://example.com/c.png)"
    assert absolute(kept, "https://host/us", "1.0.0") == kept


def test_the_wheel_lists_what_it_has_of_others(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        (name,) = [each for each in packed.namelist() if "/sboms/" in each]
        assert re.fullmatch(r"[\w.-]+\.dist-info/sboms/casual-mcp-nb\.cdx\.json", name)
        document = packed.read(name).decode()
    parts = json.loads(document)
    assert parts["metadata"]["component"]["version"] == casual_mcp_nb.__version__
    licences = (STATIC / "LICENSES.txt").read_text(encoding="utf-8")
    listed = [
        f"{part['name']} {part['version']} ({part['licenses'][0]['license']['id']})"
        for part in parts["components"]
    ]
    assert listed == re.findall(r"^@?[\w./-]+ \d\S* \(\S+\)$", licences, re.MULTILINE)
    assert len(listed) == licences.count("\n----\n") + 1
    assert all(len(part["hashes"][0]["content"]) == 128 for part in parts["components"])
    run_python(VALID_SBOM, stdin=document)


def test_the_archives_pass_the_checks_of_the_index(wheel: Path, archive: Path) -> None:
    run_tool("twine", "check", "--strict", wheel, archive)
    run_tool("check-wheel-contents", wheel)


def test_the_recipe_for_conda_forge_has_the_dependencies_of_the_project(
    archive: Path, tmp_path: Path
) -> None:
    command = [sys.executable, ROOT / ".ci" / "conda" / "casual_mcp_nb.py", archive]
    written = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    (tmp_path / "recipe.yaml").write_text(written.stdout, encoding="utf-8")
    recipe = rendered(tmp_path / "recipe.yaml")
    known = runpy.run_path(str(ROOT / ".ci" / "conda" / "casual_mcp_nb.py"))["NAMES"]
    wanted = {
        (known.get(each.name, each.name), each.specifier)
        for each in map(Requirement, PROJECT["dependencies"])
    }
    needed = {(each.name, each.specifier) for each in map(Requirement, needs(recipe))}
    assert needed == wanted
    assert recipe["package"] == {"name": PROJECT["name"], "version": casual_mcp_nb.__version__}
    assert recipe["about"]["homepage"].rstrip("/") == PROJECT["urls"]["Homepage"]
    assert f"python >={PROJECT['requires-python'].removeprefix('>=')}" in str(recipe)


def test_the_recipe_of_casual_llm_builds_the_release_that_the_project_needs() -> None:
    recipe = rendered(ROOT / ".ci" / "conda" / "casual-llm" / "recipe.yaml")
    (wanted,) = [each for each in PROJECT["dependencies"] if each.startswith("casual-llm")]
    assert Requirement(wanted).specifier.contains(recipe["package"]["version"])
    assert {Requirement(each).name for each in needs(recipe)} == {"h2", "httpx", "pydantic"}


def test_a_release_that_does_not_say_one_thing_everywhere_is_stopped(tmp_path: Path) -> None:
    problems = runpy.run_path(str(ROOT / ".ci" / "release_facts.py"))["problems"]
    ours = SOURCE.removeprefix("https://github.com/")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "casual_mcp_nb").mkdir()
    (tmp_path / "casual_mcp_nb" / "__init__.py").write_text('__version__ = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.0 - 2026-12-01\n")
    (tmp_path / "CITATION.cff").write_text("version: 1.2.0\ndate-released: 2026-12-01\n")
    assert problems(ours, "v1.2.0", tmp_path) == []
    assert [each.split()[0] for each in problems("somebody/else", "v1.2.0", tmp_path)] == [
        "pyproject.toml"
    ]
    assert [each.split()[1] for each in problems(ours, "v1.3.0", tmp_path)] == ["tag"]
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.0 - unreleased\n")
    (tmp_path / "CITATION.cff").write_text("version: 1.1.0\n")
    assert [each.split()[0] for each in problems(ours, "v1.2.0", tmp_path)] == [
        "CHANGELOG.md",
        "CITATION.cff",
    ]


def test_a_copy_of_the_repository_publishes_no_documentation() -> None:
    command = [ROOT / ".ci" / "publish_docs", "somebody/else", "main"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.split(":")[0]) == (0, "Nothing is published")


def test_every_file_that_names_an_address_of_the_project_names_the_same() -> None:
    owner, name = SOURCE.removeprefix("https://github.com/").split("/")
    pages = f"https://{owner}.github.io/{name}/"
    assert PROJECT["urls"]["Documentation"] == pages
    for title, address in PROJECT["urls"].items():
        assert title == "Documentation" or address.startswith(SOURCE)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["repository-code"], citation["url"]) == (SOURCE, pages)
    assert citation["version"] == casual_mcp_nb.__version__
    assert citation["authors"] == PROJECT["authors"]
    pattern = rf"https://github\.com/[a-z_-]+/{name}\b|https://[a-z-]+\.github\.io/"
    named = subprocess.run(
        ["git", "grep", "-hoE", pattern, "--", ".", ":!uv.lock", ":!tests"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    own = {each for each in named.stdout.split() if each.endswith((name, f"{owner}.github.io/"))}
    assert own <= {SOURCE, f"https://{owner}.github.io/"}


def run_python(code: str, *arguments: str | Path, stdin: str | None = None) -> str:
    """Run code with the tools' Python; see `run_tool`."""
    return run_tool("python", "-c", code, *arguments, stdin=stdin)


def rendered(recipe: Path) -> dict[str, Any]:
    """Read a recipe as rattler-build does."""
    return json.loads(run_python(RENDERED, recipe))


def needs(recipe: dict[str, Any]) -> list[str]:
    """The run requirements of a recipe without Python itself, in PyPI's form."""
    return [each for each in recipe["requirements"]["run"] if not each.startswith("python >")]
