"""What runs on the repository's host, which no test can run: its files are valid, pin what they use,
and call what is there.
"""

from __future__ import annotations

import json
import re
import runpy
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from kit.release_tools import run_tool

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
CHECKED = {
    "github-workflows": WORKFLOWS,
    "dependabot": [GITHUB / "dependabot.yml"],
    "github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
    "github-issue-forms": sorted((GITHUB / "ISSUE_TEMPLATE").glob("[0-9]*.yml")),
    "citation-file-format": [ROOT / "CITATION.cff"],
    "gitlab-ci": [ROOT / ".gitlab-ci.yml"],
}
"""The schema of each kind of file."""
CHECK = """
import json, sys
from check_jsonschema import main

codes = [
    main(["--builtin-schema", f"vendor.{schema}", *paths], standalone_mode=False)
    for schema, paths in json.load(sys.stdin).items()
]
sys.exit(any(codes))
"""
"""Many files in one process: it takes longer to start than to check."""
SUPPORTED = runpy.run_path(str(ROOT / ".ci" / "environment.py"))["SUPPORTED"]
PIN = re.compile(r"uses: [\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each job of each workflow, with its place."""
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
        for name, job in workflow["jobs"].items():
            yield f"{path.name}: {name}", job


def pythons(file: str, name: str) -> list[str]:
    """The versions of Python in the matrix of a job."""
    found: list[str] = dict(jobs())[f"{file}: {name}"]["strategy"]["matrix"]["python"]
    return found


def test_each_file_has_its_form() -> None:
    assert all(CHECKED.values())
    named = {schema: list(map(str, paths)) for schema, paths in CHECKED.items()}
    run_tool("python", "-c", CHECK, stdin=json.dumps(named))


def test_nothing_in_them_is_a_known_risk() -> None:
    run_tool("zizmor", "--offline", "--no-progress", GITHUB)


def test_each_job_has_a_name_and_a_time_limit_and_no_more_rights_than_it_says() -> None:
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert workflow["permissions"] in ({}, {"contents": "read"}), path.name
    for place, job in jobs():
        assert {"name", "timeout-minutes"} <= job.keys(), place
        steps = [step for step in job["steps"] if "run" in step]
        assert all("name" in step for step in steps), place


def test_actions_are_pinned_by_their_commit_and_say_which_version_that_is() -> None:
    for path in WORKFLOWS:
        lines = re.findall(r"uses: .*", path.read_text(encoding="utf-8"))
        assert lines, path.name
        assert [line for line in lines if not PIN.match(line)] == []
    texts = "".join(path.read_text(encoding="utf-8") for path in WORKFLOWS)
    pins = set(re.findall(r"uses: (\S+)@\S+ # (\S+)", texts))
    assert len(dict(pins)) == len(pins), "one action in two versions"


def test_the_scripts_that_they_run_are_there() -> None:
    files = [*WORKFLOWS, ROOT / ".gitlab-ci.yml"]
    for path in files:
        named = re.findall(r"(?<![\w/])(\.ci/[\w./]+|tests/[\w./]+)", path.read_text("utf-8"))
        assert [each for each in named if not (ROOT / each).exists()] == [], path.name
    groups = re.findall(r"\.ci/third_party\.py (\w+)", "".join(p.read_text("utf-8") for p in files))
    known = (ROOT / ".ci" / "third_party.py").read_text(encoding="utf-8")
    assert groups
    assert all(f'"{group}": ("{group}"' in known for group in groups)


def test_only_what_was_checked_and_tried_is_published() -> None:
    publish = dict(jobs())["release.yml: publish"]
    assert set(publish["needs"]) == {"build", "try"}
    assert publish["environment"] == "pypi"
    # No key: the right to ask for an identity is the only one, and only this job has it.
    assert publish["permissions"] == {"id-token": "write"}
    assert [place for place, job in jobs() if "id-token" in job.get("permissions", {})] == [
        "release.yml: publish"
    ]
    (upload,) = [step for step in publish["steps"] if "pypi-publish" in step["uses"]]
    assert upload["with"]["attestations"] is True
    assert not re.search(r"secrets\.|password", (GITHUB / "workflows/release.yml").read_text())
    build = [step.get("run", "") for step in dict(jobs())["release.yml: build"]["steps"]]
    first = next(number for number, line in enumerate(build) if line)
    assert ".ci/release_facts.py" in build[first]
    assert any(".ci/build.py --twice" in line for line in build)


def test_every_supported_python_is_classified_tested_and_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    prefix = "Programming Language :: Python :: "
    classified = [each.removeprefix(prefix) for each in project["classifiers"] if prefix in each]
    assert [each for each in classified if "." in each] == list(SUPPORTED)
    assert project["requires-python"] == f">={SUPPORTED[0]}"
    assert pythons("ci.yml", "everything") == list(SUPPORTED)
    assert pythons("release.yml", "try") == list(SUPPORTED)
    gitlab = yaml.safe_load((ROOT / ".gitlab-ci.yml").read_text(encoding="utf-8"))
    assert gitlab["everything"]["parallel"]["matrix"] == [{"PYTHON": list(SUPPORTED)}]


def test_the_accessibility_page_names_the_axe_of_the_tests_and_each_test_that_uses_it() -> None:
    page = (ROOT / "docs" / "accessibility.md").read_text(encoding="utf-8")
    installed = (ROOT / ".ci" / "third_party.py").read_text(encoding="utf-8")
    (version,) = re.findall(r'"axe-core@([\d.]+)"', installed)
    assert f"[axe-core](https://github.com/dequelabs/axe-core) {version} " in page
    using = {
        f"browser/{path.name}"
        for path in (ROOT / "tests" / "browser").glob("test_*.py")
        if "axe: Path" in path.read_text(encoding="utf-8")
    }
    assert set(re.findall(r"`(browser/\w+\.py)`", page)) == using
