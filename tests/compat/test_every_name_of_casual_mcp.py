"""Every module, name, parameter and result of casual-mcp 1.0 is here, or in the guide's table of what differs on purpose."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from casual_mcp_nb import Config, load_config

from .describe_package import described_module, described_results

ROOT = Path(__file__).resolve().parents[2]
PEER = ROOT / ".third-party" / "casual-mcp" / "bin" / "python"
GUIDE = ROOT / "docs" / "guides" / "coming-from-casual-mcp.md"
PACKAGE = "casual_mcp_nb"

READ = ("property", "field")
EMPTY = {"()": "<factory>"}
"""An empty tuple is what an empty list is there."""

pytestmark = [
    pytest.mark.defect("H3"),
    pytest.mark.defect("L3"),
    pytest.mark.skipif(not PEER.exists(), reason="python3 .ci/third_party.py casual-mcp installs it"),
]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what casual-mcp 1.0.0 offers, as its own Python sees it."""
    script = Path(__file__).with_name("describe_package.py")
    environ = {**os.environ, "LOG_LEVEL": "ERROR", "OPENAI_API_KEY": "sk-local"}
    folder = tmp_path_factory.mktemp("peer")
    done = subprocess.run(
        [PEER, "-B", script, "casual_mcp"], cwd=folder, env=environ, capture_output=True, text=True, check=True, timeout=120
    )
    described: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return described


def on_purpose() -> set[str]:
    """Return what the guide says is different on purpose: the code in the first column of that table."""
    text = GUIDE.read_text(encoding="utf-8")
    table = text.partition("## Names that differ on purpose\n")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert all(len(row.strip("|").split(" | ")) == 2 for row in rows), "each row has a name and a reason"
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])}


def differences(theirs: dict[str, Any]) -> Iterator[str]:
    """Yield what is missing or differs: modules, names, members, parameters, defaults, fields, kinds."""
    for module, names in theirs["modules"].items():
        try:
            ours = described_module(PACKAGE, module, names)
        except ModuleNotFoundError:
            yield f"{module}.*"
            continue
        for name, there in names.items():
            key = f"{module}.{name}" if module in ("cli", "main") else name
            yield from differs(key, there, ours.get(name))


def differs(key: str, there: dict[str, Any], here: dict[str, Any] | None) -> Iterator[str]:
    """Yield how one name differs."""
    same_kind = here is not None and (here["kind"] == there["kind"] or {here["kind"], there["kind"]} <= {*READ})
    if here is None or not same_kind or here.get("async") != there.get("async"):
        yield key
        return
    if not set(there.get("bases", ())) <= set(here.get("bases", ())):
        yield f"{key} bases"
    yield from parameters_that_differ(key, there.get("parameters", {}), here.get("parameters", {}))
    for field in there.get("fields", ()):
        if field not in here["fields"] and field not in here["members"]:
            yield f"{key}.{field}"
    for member, what in there.get("members", {}).items():
        yield from differs(f"{key}.{member}", what, here["members"].get(member))


def parameters_that_differ(key: str, there: dict[str, Any], here: dict[str, Any]) -> Iterator[str]:
    """Yield the parameters that cannot be passed as there, or are something else if they are not passed."""
    for place, (name, parameter) in enumerate(there.items()):
        ours = here.get(name)
        by_position = parameter["kind"] == "POSITIONAL_OR_KEYWORD"
        same_place = ours is not None and ours["kind"] == parameter["kind"] and list(here).index(name) == place
        if ours is None or (by_position and not same_place) or (ours["default"] is None and parameter["default"] is not None):
            yield f"{key}({name})"
        elif parameter["default"] is not None and parameter["default"] not in (ours["default"], EMPTY.get(ours["default"])):
            yield f"{key}({name}={parameter['default']})"


def covers(there: Any, here: Any) -> bool:
    """Return whether a result has at least what the other one has."""
    if isinstance(there, dict) and isinstance(here, dict):
        if set(there) & {"object", "raises"}:
            ((names, ours),) = ((there[kind], here.get(kind, ())) for kind in there)
            return set(names) - {"namespace_tools"} <= set(ours)
        return all(key in here and covers(each, here[key]) for key, each in there.items())
    if isinstance(there, list) and isinstance(here, list):
        return len(there) == len(here) and all(map(covers, there, here))
    return bool(there == here)


def test_every_name_is_here_or_the_guide_says_why_not(theirs: dict[str, Any]) -> None:
    assert len(theirs["modules"]) == 21
    differing = set(differences(theirs))
    told = on_purpose()
    covered = {each for each in differing if each in told or f"{each.partition('.')[0]}.*" in told}
    assert differing - covered == set(), "neither here nor in the guide"
    stale = {each for each in told if each not in differing and not (each.endswith(".*") and covered)}
    assert stale == set(), "in the guide, but not different"


def test_the_same_calls_return_the_same_kinds_and_fields(theirs: dict[str, Any], tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path):
        ours = json.loads(json.dumps(asyncio.run(described_results(PACKAGE, tmp_path))))
    assert set(ours) == set(theirs["results"])
    assert {name: ours[name] for name, there in theirs["results"].items() if not covers(there, ours[name])} == {}


@pytest.mark.defect("L2")
def test_every_dump_of_a_config_loads(theirs: dict[str, Any]) -> None:
    assert {dump["tool_discovery"] is None for dump in theirs["dumps"]} == {True, False}
    for dump in theirs["dumps"]:
        for config in (load_config(dump), Config.model_validate(dump), Config(**dump)):
            assert set(config.servers) == set(dump["servers"])
            assert config.tool_discovery.enabled == bool((dump["tool_discovery"] or {}).get("enabled"))
