"""The imports of the package are declared, and the names given to its tools exist."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from casual_mcp_nb.bundled import BUNDLED

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

OPTIONAL = {
    *(
        "anthropic",
        "google",
        "httpx",
        "litellm",
        "matplotlib",
        "ollama",
        "openai",
        "pytest",
    ),
    *("fastembed", "huggingface_hub", "model2vec", "pydantic_monty", "sentence_transformers"),
    *("fastapi", "fastapi_offline", "h11", "starlette", "tiktoken", "typing_extensions", "uvicorn"),
    *("charset_normalizer", "docx", "inscriptis", "jmespath", "lxml", "pint"),
    *("nest_asyncio", "opentelemetry"),
    *(
        "google_auth_httplib2",
        "google_auth_oauthlib",
        "googleapiclient",
        "httplib2",
        "oauthlib",
        "requests",
    ),
}
"""Imported inside a function, where the package does without it or says what to install, for type
checkers only, or in what only that package loads.
"""


def imported() -> set[str]:
    """The top names of all third-party modules that the package imports, also inside functions."""
    found: set[str] = set()
    for path in (ROOT / "casual_mcp_nb").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"casual_mcp_nb", "_typeshed"}


def name_of(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower().replace("_", "-")


@pytest.mark.defect("D15")
def test_every_package_that_is_imported_is_declared_with_a_floor() -> None:
    declared = {
        name_of(requirement): requirement for requirement in PROJECT["project"]["dependencies"]
    }
    homes = packages_distributions()
    for module in sorted(imported() - OPTIONAL):
        # fastmcp's own modules come with fastmcp-slim, which fastmcp brings.
        names = {name.lower().replace("_", "-") for name in [*homes.get(module, []), module]}
        assert names & declared.keys(), f"{module} is imported and not declared"
    for requirement in declared.values():
        assert ">=" in requirement, f"{requirement} has no floor"


@pytest.mark.defect("F25")
def test_requirements_of_bundled_servers_are_dependencies_or_in_the_named_extra() -> None:
    homes = packages_distributions()
    extras = PROJECT["project"]["optional-dependencies"]
    assert "casual-mcp-nb[bundled]" in extras["notebook"]
    assert "casual-mcp-nb[bundled]" in extras["google"]
    for server in BUNDLED.values():
        needed = [*PROJECT["project"]["dependencies"], *extras.get(server.extra, ())]
        if "casual-mcp-nb[bundled]" in needed:
            needed += extras["bundled"]
        declared = {name_of(each) for each in needed}
        for library in server.libraries:
            names = {name.lower().replace("_", "-") for name in homes[library]}
            assert names & declared, f"{server.name} needs {library}"
    default = {server.name: server.extra for server in BUNDLED.values() if server.default}
    assert {name for name, extra in default.items() if extra} == {"units"}


@pytest.mark.defect("D15")
@pytest.mark.parametrize("name", ["casual-llm", "fastmcp", "mcp", "mcp-types"])
def test_a_library_whose_privates_are_used_is_bounded_at_its_next_major_release(name: str) -> None:
    (requirement,) = [each for each in PROJECT["project"]["dependencies"] if name_of(each) == name]
    floor, ceiling = re.search(r">=([\d.]+),<([\d.]+)$", requirement).groups()  # type: ignore[union-attr]
    assert ceiling == str(int(floor.split(".")[0]) + 1)


BOUNDED = {"casual-llm", "fastmcp", "mcp", "mcp-types"}
"""What may have a ceiling: parts of these that are not public are used, see
test_library_privates.py. For another one, a break must be known.
"""


def of_users() -> list[Requirement]:
    """What users install: the dependencies and the extras, without this package's own extras."""
    extras = PROJECT["project"]["optional-dependencies"].values()
    listed = [*PROJECT["project"]["dependencies"], *(each for extra in extras for each in extra)]
    return [each for each in map(Requirement, listed) if each.name != "casual-mcp-nb"]


def test_each_dependency_of_a_user_has_a_floor_and_only_those_with_a_reason_a_ceiling() -> None:
    for requirement in of_users():
        operators = [each.operator for each in requirement.specifier]
        expected = [">=", "<"] if requirement.name in BOUNDED else [">="]
        assert sorted(operators, reverse=True) == expected, str(requirement)


def test_each_dependency_of_a_user_has_a_line_on_why_it_is_there() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    text = text.partition("[project]")[2].partition("[dependency-groups]")[0]
    lines = re.findall(r'^[^#\n]*"([A-Za-z][\w.-]*)(?:\[[\w,]+\])?[<>=][^#\n]*(#.*)?$', text, re.M)
    named = {name: reason.strip("# ") for name, reason in lines}
    assert {each.name for each in of_users()} <= named.keys()
    assert [name for name, reason in named.items() if not re.fullmatch(r".+\.", reason)] == []


def test_the_lock_is_up_to_date_and_takes_everything_from_pypi() -> None:
    packages = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
    (project,) = [package for package in packages if package["name"] == "casual-mcp-nb"]
    optional = PROJECT["project"]["optional-dependencies"]
    required = {
        "": PROJECT["project"]["dependencies"],
        **{
            extra: [each for each in optional[extra] if name_of(each) != "casual-mcp-nb"]
            for extra in optional
        },
        **PROJECT["dependency-groups"],
    }
    locked: dict[str, list[dict[str, str]]] = {name: [] for name in required}
    for each in project["metadata"]["requires-dist"]:
        extra = re.search(r"extra == '([\w-]+)'", each.get("marker", ""))
        locked[extra[1] if extra else ""].append(each)
    locked |= project["metadata"]["requires-dev"]
    for name, requirements in required.items():
        wanted = {(each.name, each.specifier) for each in map(Requirement, requirements)}
        inlined = {
            (each["name"], Requirement(f"{each['name']}{each.get('specifier', '')}").specifier)
            for each in locked[name]
        }
        assert wanted - inlined == set(), f"{name}: run uv lock"
    homes = [package["source"] for package in packages if package is not project]
    assert all(home == {"registry": "https://pypi.org/simple"} for home in homes)


def test_what_the_workflows_run_exists() -> None:
    workflows = list((ROOT / ".github" / "workflows").glob("*.yml"))
    assert workflows
    for path in workflows:
        for named in re.findall(r"(?:tests|\.ci)/[\w./-]*\w", path.read_text(encoding="utf-8")):
            assert (ROOT / named).exists(), f"{path.name} names {named}"


@pytest.mark.defect("C12")
def test_what_the_linter_is_told_about_exists() -> None:
    for pattern in PROJECT["tool"]["ruff"]["lint"]["per-file-ignores"]:
        assert any(ROOT.glob(pattern)), f"there is nothing at {pattern}"
