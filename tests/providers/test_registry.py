"""The registry has the facts of a provider: other mentions of them agree with it, and other
packages can add to it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from kit.raw_server import raw_config

from casual_mcp_nb.base.dialects import DIALECTS, PLAIN, dialect_of
from casual_mcp_nb.base.tool_door import admit
from casual_mcp_nb.providers.registry import GROUP, specs

ROOT = Path(__file__).resolve().parents[2]


def test_the_guide_lists_the_providers_as_they_are() -> None:
    guide = (ROOT / "docs" / "guides" / "providers.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"\| `provider` \| reaches \| extra \|\n\|[-|]+\n((?:\|.*\n)+)", guide)
    rows = [
        tuple(cell.strip() for cell in line.strip("|").split("|")) for line in table.splitlines()
    ]
    listed = {name.strip("`"): extra.strip("`") for name, _, extra in rows}
    assert listed == {spec.name: spec.sdk or "none" for spec in specs().values()}


def test_each_sdk_is_an_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {spec.sdk for spec in specs().values() if spec.sdk} <= project[
        "optional-dependencies"
    ].keys()


def test_each_provider_talks_in_the_format_of_its_name() -> None:
    assert [spec.adapter.name for spec in specs().values() if spec.adapter] == [
        s.name for s in specs().values() if s.adapter
    ]
    assert len({spec.position for spec in specs().values()}) == len(specs())


def test_each_provider_says_what_it_takes_of_a_schema() -> None:
    silent = [
        spec.name
        for spec in specs().values()
        if spec.adapter
        and not spec.adapter.dialect
        and dialect_of(spec.adapter.name, "", at_home=True) is PLAIN
    ]
    assert silent == []


def python(code: str, path: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(path)!r})\n{code}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def test_the_registry_imports_no_sdk(tmp_path: Path) -> None:
    sdks = {spec.sdk for spec in specs().values() if spec.sdk} | {"casual_llm", "httpx", "fastmcp"}
    code = (
        f"from casual_mcp_nb.providers.registry import specs; specs(); print(sorted({sdks!r} &"
        " sys.modules.keys()))"
    )
    assert python(code, tmp_path) == "[]\n"


@pytest.mark.slow
def test_a_package_adds_a_provider_and_a_broken_one_takes_nothing_with_it(tmp_path: Path) -> None:
    (tmp_path / "acme.py").write_text("""
from casual_mcp_nb.providers.scripted import ScriptedClient
from casual_mcp_nb.providers.registry import ProviderSpec

SPEC = ProviderSpec(name="acme", about="", build=lambda name, config: ScriptedClient(["from Acme"]), key_variable="ACME_KEY")
OFFLINE = ProviderSpec(name="offline", about="an impostor", build=None)
""")
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    added = (
        "acme = acme:SPEC\nagain = acme:OFFLINE\nbroken = acme:NOTHING\nmissing ="
        " not_there:SPEC\nwrong = acme:__name__\n"
    )
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{added}")
    code = """
import asyncio
from casual_llm.messages import UserMessage
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.providers.registry import specs
config = {"clients": {"desk": {"provider": "acme"}}, "models": {"m": {"client": "desk", "model": "m-1"}}}
config = load_config(config, environ={"ACME_KEY": "sk-of-acme"})
answer = asyncio.run(ModelFactory(config).chat_model().complete([UserMessage(content="Hi")]))
print(config.clients["desk"].key_variable, answer.message.content, list(specs())[-2:], bool(specs()["offline"].about))
print(specs()["offline"].about == "an impostor")
"""
    assert python(code, tmp_path).splitlines() == [
        "ACME_KEY from Acme ['offline', 'acme'] True",
        "False",
    ]


ODD = {
    "type": "object",
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "required": ["a b", "gone"],
    "properties": {
        "a b": {"type": "string", "pattern": "(?=x)y"},
        "n": {"enum": [1, 2]},
        "many": {"type": "array", "maxItems": 5_000},
    },
}


def test_what_is_plain_is_taken_by_every_provider() -> None:
    plain = admit({"name": "t", "description": "", "parameters": ODD}, PLAIN).definition
    assert plain is not None
    assert plain["parameters"] != ODD
    for dialect in DIALECTS.values():
        assert admit(plain, dialect).definition == plain


ACME = """
from casual_llm import AssistantMessage
from casual_mcp_nb.base.dialects import Dialect
from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.conversation.step import ModelResponse
from casual_mcp_nb.providers.registry import ProviderAdapter, ProviderSpec, plain_tools_param

class Client:
    seen = []
    async def _chat(self, messages, options): ...

async def ask(client, model, messages, options):
    client.seen.append(options.extra["tools"][0]["parameters"])
    return ModelResponse(AssistantMessage(content="ok"), TokenUsage(), "stop")

def spec(name, dialect):
    kind = type(name, (Client,), {"_chat": lambda self, messages, options: None})
    adapter = ProviderAdapter(plain_tools_param, ask, name=name, dialect=dialect)
    return ProviderSpec(name=name, about="", build=lambda name, config: kind(), client=lambda: kind, adapter=adapter)

SILENT = spec("silent", None)
SAID = spec("said", Dialect(title="Said", sources=("https://example.org",)))
"""


def test_a_provider_of_another_package_gets_plain_schemas_unless_it_says_more(
    tmp_path: Path,
) -> None:
    (tmp_path / "acme.py").write_text(ACME)
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\nsilent = acme:SILENT\nsaid = acme:SAID\n")
    tool = {"name": "t", "inputSchema": ODD}
    names = ("silent", "said")
    config = {
        "clients": {name: {"provider": name} for name in names},
        "models": {name: {"client": name, "model": "m"} for name in names},
        "servers": {"odd": raw_config(tools=[tool])},
    }
    code = f"""
import json
from acme import Client
from casual_mcp_nb import Session
with Session({config!r}, quiet=True, store=None) as session:
    for model in {names!r}:
        turns = [session.chat("x", model=model, echo="none") for _ in range(2)]
        told = ["schemas" in notice.text for turn in turns for notice in turn.notices]
        print(json.dumps([told, Client.seen[-1]["properties"]]))
"""
    silent, said = map(json.loads, python(code, tmp_path).splitlines())
    assert (silent[0], said[0]) == ([True], [])
    assert "a b" not in silent[1]
    assert said[1]["n"]["enum"] == [1, 2]
