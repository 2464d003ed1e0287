"""Planted secrets, and the search for them in every form of every object, in every error and in
every log.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from kit.mcp_http import McpHttp
from kit.provider import PROVIDERS, Provider, answer
from kit.raw_server import raw_config, text_result
from kit.scripted_http import Reply
from kit.secrets import assert_nowhere, every_log, planted

from casual_mcp_nb import Session
from casual_mcp_nb.base.config import Config
from casual_mcp_nb.base.secret import MASK
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.errors import CasualMcpError
from casual_mcp_nb.providers.registry import loggers
from casual_mcp_nb.providers.scripted import call, calls, scripted_model
from casual_mcp_nb.servers.logs import keep_out_of_log, route_library_logs

LOOK = {"secrets": "masked"}
NAMES = (
    "key",
    "env",
    "argument",
    "option",
    "header",
    "bearer",
    "auth",
    "password",
    "query",
    "path",
)
LONG = " ".join(f"word-{number}" for number in range(2000))


@pytest.fixture
def secrets() -> dict[str, str]:
    return {name: planted(name) for name in NAMES}


@pytest.fixture
def remote() -> Iterator[McpHttp]:
    with McpHttp({"read": text_result(LONG)}) as server:
        yield server


def config_of(
    secrets: dict[str, str],
    mark: str,
    remote: McpHttp,
    provider: dict[str, Any] | None = None,
    **servers: Any,
) -> Config:
    """A config that uses each secret in the place after which it is named; more servers by name."""
    local = raw_config(mark, calls={"tell": {"result": text_result(LONG)}})
    local["env"] |= {"TOKEN": secrets["env"]}
    local["args"] += ["--mode=${ARGUMENT}", "--api-key", secrets["option"]]
    address = remote.url.replace("http://", f"http://me:{secrets['password']}@")
    there = {
        "url": f"{address}/mcp/{secrets['path'].replace('-', '')}?page=2&token={secrets['query']}",
        "headers": {"X-Key": secrets["header"], "X-Auth": f"Bearer {secrets['bearer']}"},
        "auth": secrets["auth"],
    }
    data = {**(provider or {}), "servers": {"local": local, "remote": there, **servers}}
    return load_config(data, environ={"ARGUMENT": secrets["argument"]})


def values(secrets: dict[str, str]) -> list[str]:
    return [*secrets.values(), secrets["path"].replace("-", "")]


@pytest.mark.fault(81)
def test_no_object_that_can_be_reached_shows_a_secret(
    secrets: dict[str, str], mark: str, remote: McpHttp
) -> None:
    for provider in PROVIDERS:
        with Provider(answer(provider, "fine")) as model:
            config = config_of(secrets, mark, remote, model.config(provider, secrets["key"]))
            with Session.from_config(config) as session:
                assert {status.state for status in session.servers.values()} == {"ready"}
                turn = session.chat("go")
                chat = session.parts.chat
                connections = list(chat.server_manager._connections.values())
                links = [connection._lifecycle.session for connection in connections]
                assert_nowhere(
                    values(secrets),
                    [config, *config.servers.values(), *config.clients.values()],
                    [
                        dict(thing)
                        for thing in (config, *config.servers.values(), *config.clients.values())
                    ],
                    [
                        config.model_dump_json(context=LOOK),
                        json.dumps(config.model_dump(mode="json", context=LOOK)),
                        repr(vars(config)),
                    ],
                    [
                        session,
                        session.status,
                        session.servers,
                        session.models,
                        session.tools,
                        *session.servers.values(),
                    ],
                    [
                        turn,
                        *turn.trace,
                        *turn.steps,
                        chat,
                        chat.server_manager,
                        chat.models,
                        session.parts.engine,
                        session.parts.runner,
                    ],
                    [
                        chat.models.get_client("desk"),
                        chat.models.get_model("small"),
                        chat.models.chat_model("small"),
                    ],
                    [chat.models.get_client("desk").client] if provider != "openai" else [],
                    [
                        *connections,
                        *links,
                        *(link.context for link in links if link),
                        *(link.sdk for link in links if link and link.alive),
                    ],
                )


@pytest.mark.fault(81)
def test_an_address_and_a_command_are_shown_without_what_is_secret_in_them(
    secrets: dict[str, str], mark: str, remote: McpHttp
) -> None:
    with Session.from_config(config_of(secrets, mark, remote)) as session:
        local, there = (
            session.servers["local"].address or "",
            session.servers["remote"].address or "",
        )
    assert "raw_server.py" in local
    assert "--mode=" in local
    assert there.startswith(f"{remote.url}/mcp/")


BROKEN: list[dict[str, Any]] = [
    {"exit": 1, "stderr": "cannot log in with SECRET"},
    {"handshake": "silent", "banner": "hello SECRET", "config": {"init_timeout": 1}},
    {"calls": {"fail": {"error": {"code": -1, "message": "refused: SECRET"}}}},
    {"calls": {"fail": {"stderr": "panic: SECRET", "die": True}}},
]


@pytest.mark.fault(81)
@pytest.mark.parametrize("plan", BROKEN)
def test_what_a_failing_server_repeats_is_masked(
    secrets: dict[str, str], mark: str, plan: dict[str, Any]
) -> None:
    told = json.loads(json.dumps(plan).replace("SECRET", secrets["env"]))
    fields = raw_config(mark, **told)
    fields["env"]["TOKEN"] = secrets["env"]
    # The plan itself stands in the arguments, as a secret may.
    fields["args"][-1] = "${PLAN}"
    config = load_config({"servers": {"raw": fields}}, environ={"PLAN": json.dumps(told)})
    with every_log() as records, Session.from_config(config) as session:
        with pytest.raises(CasualMcpError) as caught:
            session.tools.call("raw__fail")
        turn = (
            session.chat("go", model=scripted_model("x"))
            if session.servers["raw"].state == "ready"
            else None
        )
        assert_nowhere(
            [secrets["env"]],
            caught.value,
            session.servers,
            session.servers["raw"],
            session,
            turn,
            records,
        )


def told(secrets: dict[str, str]) -> dict[str, Any]:
    """A plan that tells secrets wherever a healthy server can."""
    secret = ", ".join(secrets.values())
    schema = {
        "type": "object",
        "properties": {"key": {"type": "string", "default": secrets["key"], "description": secret}},
    }
    result = {
        "content": [
            {"type": "text", "text": json.dumps(secrets)},
            {"type": "resource", "resource": {"uri": f"file:///{secrets['env']}", "text": secret}},
            {
                "type": "resource_link",
                "uri": f"https://host/?key={quote(secrets['key'])}",
                "name": secret,
            },
        ],
        "structuredContent": {secret: [{"all": secrets}]},
    }
    tools = [
        {"name": name, "title": secret, "description": secret, "inputSchema": schema}
        for name in ("tell", "fail", "log")
    ]
    notice = {"method": "notifications/message", "params": {"level": "info", "data": secret}}
    calls = {
        "tell": {"result": result},
        "fail": {"result": {**result, "isError": True}},
        "log": {"notify": notice, "error": {"code": -1, "message": secret}},
    }
    greeting = {"instructions": secret, "serverInfo": {"name": secret, "version": secret}}
    return {"tools": tools, "calls": calls, "greeting": greeting}


@pytest.mark.fault(81)
@pytest.mark.parametrize("way", ["stdio", "http"])
def test_no_secret_of_the_config_comes_back_in_what_a_server_sends(
    secrets: dict[str, str], mark: str, tmp_path: Path, way: str
) -> None:
    plan = told({**secrets, "path": secrets["path"].replace("-", "")})
    results = {
        name: {"content": [], **does.get("result", {})} for name, does in plan["calls"].items()
    }
    with (
        Provider() as model,
        McpHttp(results, tools=plan["tools"]) as remote,
        every_log() as records,
    ):
        teller = raw_config(mark, tmp_path, **plan) if way == "stdio" else remote.config()
        config = config_of(
            secrets, mark, remote, model.config("openai", secrets["key"]), teller=teller
        )
        answers = [call(f"teller__{name}") for name in ("tell", "fail", "log")]
        with Session.from_config(config) as session:
            turn = session.chat("go", model=scripted_model(calls(*answers), "done"))
            by_hand = session.tools.call("teller__tell")
            saved = session.export(tmp_path / "chat.json"), session.export(tmp_path / "chat.html")
            assert all(len(row.result) > 10 for row in turn.tool_calls)
            assert_nowhere(
                values(secrets),
                [
                    turn,
                    *turn.trace,
                    *turn.steps,
                    turn.messages,
                    turn.tool_calls,
                    *turn.tool_calls,
                    *turn.server_logs,
                ],
                [step.request for step in turn.steps],
                [by_hand, by_hand.structured, [part.data for part in by_hand.content]],
                [
                    session,
                    session.tools,
                    session.tools.manifest,
                    session.servers,
                    session.servers["teller"],
                    session.search("key"),
                ],
                [saved, records, session.servers.doctor()],
            )
            (tool,) = [
                tool for tool in session.tools if tool.name == "tell" and tool.server == "teller"
            ]
            assert tool.description == ", ".join([MASK] * len(secrets))


@pytest.mark.fault(83)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_provider_that_repeats_the_key_is_masked(secrets: dict[str, str], provider: str) -> None:
    said = {"error": {"message": f"Incorrect API key provided: {secrets['key']}.", "type": "x"}}
    replies = [
        Reply(status, said, {"www-authenticate": f"Bearer {secrets['key']}"})
        for status in (401, 403, 429, 500, 200)
    ]
    with Provider(*replies) as model, every_log() as records:
        with Session.from_config(model.config(provider, secrets["key"], max_retries=0)) as session:
            for _ in replies:
                turn = session.chat("go")
                assert turn.status == "failed"
                with pytest.raises(CasualMcpError) as caught:
                    turn.raise_for_status()
                assert_nowhere(
                    [secrets["key"]], turn, list(turn.trace), turn.error, caught.value, session
                )
        assert_nowhere([secrets["key"]], records)


@pytest.mark.fault(83)
def test_an_unforeseen_error_of_a_model_is_masked_too(secrets: dict[str, str]) -> None:
    config = {"clients": {"desk": {"provider": "openai", "api_key": secrets["key"]}}}
    with Session.from_config(config) as session:
        turn = session.chat(
            "go", model=scripted_model(RuntimeError(f"cannot use {secrets['key']}"))
        )
        assert turn.status == "failed"
        with pytest.raises(CasualMcpError) as caught:
            turn.raise_for_status()
    assert_nowhere([secrets["key"]], turn, list(turn.trace), str(caught.value), repr(caught.value))
    assert secrets["key"] not in "".join(traceback.format_exception(caught.value))


@pytest.mark.fault(83)
def test_an_address_that_a_client_refuses_is_an_error_without_the_key(
    secrets: dict[str, str],
) -> None:
    for provider in PROVIDERS:
        for address in ("http://[broken", "http://host:port/v1", "no address"):
            client = {
                "provider": provider,
                "api_key": secrets["key"],
                "base_url": address,
                "max_retries": 0,
            }
            config = {
                "clients": {"desk": client},
                "models": {"small": {"client": "desk", "model": "m"}},
            }
            with (
                pytest.raises(CasualMcpError, match="desk") as caught,
                Session.from_config(config) as session,
            ):
                session.chat("go").raise_for_status()
            assert_nowhere([secrets["key"]], caught.value)


@pytest.mark.fault(84)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_finest_logs_of_a_full_chat_hold_no_secret_and_no_whole_result(
    secrets: dict[str, str], mark: str, remote: McpHttp, provider: str
) -> None:
    calls = answer(provider, "", ("local__tell", {}), ("remote__read", {}))
    with Provider(calls, answer(provider, "fine")) as model:
        import fastmcp  # noqa: F401  (its loggers must exist to be watched)

        route_library_logs()
        with every_log() as records:
            config = config_of(secrets, mark, remote, model.config(provider, secrets["key"]))
            with Session.from_config(config) as session:
                session.parts.engine._loop.set_debug(True)
                turn = session.chat("go")
                session.parts.engine._loop.set_debug(False)
        assert [call.status for call in turn.tool_calls] == ["ok", "ok"]
        assert turn.answer == "fine"
    assert_nowhere(values(secrets), records)
    assert {record.name.split(".")[0] for record in records} >= {"casual_mcp_nb", "mcp", "httpx2"}
    for record in records:
        assert "word-40 " not in record.getMessage(), (record.name, record.getMessage()[:200])


@pytest.mark.fault(84)
def test_a_librarys_log_keeps_its_level_and_reaches_other_handlers_shortened() -> None:
    secret = planted("line")
    keep_out_of_log([secret])
    route_library_logs(loggers())
    kept: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            kept.append(record.getMessage())

    handler = Keep()
    logger = logging.getLogger("openai")
    logger.addHandler(handler)
    try:
        logger.error("failed with %s and %s", secret, LONG)
    finally:
        logger.removeHandler(handler)
    (line,) = kept
    assert secret not in line
    assert len(line) < 250
    assert f"({len('failed with ********** and ') + len(LONG):,} characters)" in line


SHORT_LIST = {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "FASTMCP_SHOW_SERVER_BANNER"}
OWN = {"CASUAL_TEST_MARK", "SETTING"}


@pytest.mark.fault(85)
def test_a_server_gets_the_short_list_and_its_own_settings_only(
    secrets: dict[str, str], mark: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in (
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "OLLAMA_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "PYTHONPATH",
    ):
        monkeypatch.setenv(name, secrets["key"])
    (tmp_path / ".env").write_text(f"FROM_FILE={secrets['key']}\n")
    fields = raw_config(mark, calls={"look": {"answer": "environment"}})
    fields["env"]["SETTING"] = "${HOME}"
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"servers": {"raw": fields}}))
    with Session.from_config(path) as session:
        found = json.loads(session.tools.call("raw__look").result)
    # A Python in the C locale sets LC_CTYPE for itself.
    assert set(found) - {"LC_CTYPE"} <= SHORT_LIST | OWN
    assert set(found) >= OWN | {"PATH"}
    assert secrets["key"] not in json.dumps(found)
