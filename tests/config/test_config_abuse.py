"""Configs that are made to cost much, and values that nobody can be sent or that must not
travel.
"""

from __future__ import annotations

import copy
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest
from kit.secrets import every_log

from casual_mcp_nb.config.document import MAX_BYTES
from casual_mcp_nb.config.environment import MAX_ALL, MAX_VALUE, read_environment
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.errors import CasualMcpError, ConfigError, UnknownNameError, UsageError
from casual_mcp_nb.providers.factory import ModelFactory

LARGE = "x" * 100_000


def refusal(data: Any, **environ: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_config(data, environ=environ)
    return caught.value


@pytest.mark.defect("B10")
@pytest.mark.parametrize("text", ["${A}" * 10_000, "${A}" * (MAX_VALUE // 100_000 + 1)])
def test_a_value_cannot_grow_without_bound_by_its_variables(text: str) -> None:
    error = refusal({"servers": {"s": {"command": "x", "args": ["ok", text]}}}, A=LARGE)
    assert error.key == "servers.s.args[1]"
    assert f"{MAX_VALUE:,}" in str(error)
    assert len(str(error)) < 500


@pytest.mark.defect("B10")
def test_all_values_together_cannot_grow_without_bound() -> None:
    error = refusal({"servers": {"s": {"command": "x", "args": ["${A}" * 9] * 20}}}, A=LARGE)
    assert f"{MAX_ALL:,}" in str(error)


@pytest.mark.defect("B10")
def test_a_long_value_is_taken_as_long_as_it_is_in_bounds() -> None:
    config = load_config(
        {"servers": {"s": {"command": "x", "env": {"A": "${A}" * 9}}}}, environ={"A": LARGE}
    )
    assert len(config.servers["s"].env["A"].get_secret_value()) == 900_000


@pytest.mark.defect("B10")
def test_a_file_too_large_for_a_config_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    assert "larger than" in str(refusal(path))


@pytest.mark.defect("B10")
def test_an_unknown_name_is_answered_with_each_name_once() -> None:
    error = UnknownNameError("toolset", "zzz", ["all", "one", "all", "one"])
    assert str(error).count("'all'") == 1
    assert error.matches == []
    assert UnknownNameError("toolset", "on", iter(["one", "one", "two"])).matches == ["one"]
    assert "'one'" in str(UnknownNameError("toolset", "zzz", iter(["one"])))


KEYED = {"url": "https://a", "headers": {"X-Key": "${V}"}}
UNSENDABLE: dict[str, tuple[dict[str, Any], str]] = {
    "a header with a line break": (
        {"servers": {"s": {"url": "https://a", "headers": {"X-Key": "${V}"}}}},
        "servers.s.headers.X-Key",
    ),
    "a token with a line break": (
        {"servers": {"s": {"url": "https://a", "auth": "${V}"}}},
        "servers.s.auth",
    ),
    "a key with a line break": (
        {"clients": {"c": {"provider": "openai", "api_key": "${V}"}}},
        "clients.c.api_key",
    ),
    "a header of a client": (
        {"clients": {"c": {"provider": "openai", "headers": {"X-Key": "${V}"}}}},
        "clients.c.headers.X-Key",
    ),
}


@pytest.mark.defect("A9")
@pytest.mark.parametrize(
    "value", ["planted-x\n", "planted\r\nX: y", "planted\0x", "plänted-x", "planted-\u20ac"]
)
@pytest.mark.parametrize(("data", "key"), UNSENDABLE.values(), ids=UNSENDABLE)
def test_a_value_that_cannot_be_sent_is_refused_with_its_name_and_never_its_text(
    data: dict[str, Any], key: str, value: str
) -> None:
    error = refusal(data, V=value)
    assert error.key == key
    assert "pl" not in str(error).replace("place", "")


@pytest.mark.defect("A9")
@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"headers": {"X Key": "v"}}, "servers.s.headers.X Key"),
        ({"headers": {"": "v"}}, "servers.s.headers."),
    ],
)
def test_a_name_that_no_header_can_have_is_refused(fields: dict[str, Any], key: str) -> None:
    assert refusal({"servers": {"s": {"url": "https://a", **fields}}}).key == key


@pytest.mark.defect("A9")
@pytest.mark.parametrize("env", [{"A=B": "v"}, {"": "v"}, {"A": "v\0"}])
def test_a_variable_that_no_process_can_have_is_refused(env: dict[str, str]) -> None:
    assert "servers.s.env" in (refusal({"servers": {"s": {"command": "x", "env": env}}}).key or "")


@pytest.mark.defect("A9")
def test_an_unusable_key_in_the_environment_is_refused_by_its_variable_name() -> None:
    error = refusal({"clients": {"c": {"provider": "openai"}}}, OPENAI_API_KEY="planted-key\n")
    assert (error.key, "OPENAI_API_KEY" in str(error), "planted" in str(error)) == (
        "clients.c.api_key",
        True,
        False,
    )


@pytest.mark.defect("A9")
def test_a_variable_of_several_lines_is_fine() -> None:
    config = load_config({"servers": {"s": {"command": "x", "env": {"PEM": "a\nb\n"}}}}, environ={})
    assert config.servers["s"].env["PEM"].get_secret_value() == "a\nb\n"


@pytest.mark.defect("A9")
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_config_is_copied_and_never_pickled(protocol: int) -> None:
    config = load_config(
        {
            "clients": {"c": {"provider": "openai", "api_key": "planted"}},
            "servers": {"s": {"command": "x"}},
        },
        environ={},
    )
    assert copy.deepcopy(config) == copy.copy(config) == config
    for thing in (config, config.clients["c"], config.servers["s"], {"deep": [config]}):
        with pytest.raises(UsageError, match="load_config"):
            pickle.dumps(thing, protocol)


@pytest.mark.defect("A9")
@pytest.mark.parametrize("provider", ["openai", "anthropic", "ollama"])
def test_the_log_of_a_client_has_its_address_without_secrets(provider: str) -> None:
    address = "http://me:planted-password@127.0.0.1:9/v1?key=planted-query"
    config = load_config(
        {"clients": {"c": {"provider": provider, "base_url": address, "api_key": "planted-key"}}},
        environ={},
    )
    import casual_llm  # noqa: F401  (its loggers must exist to be watched)

    with every_log() as records:
        logging.getLogger("casual_llm").propagate = True
        ModelFactory(config).get_client("c")
    assert [record for record in records if record.name.startswith("casual_llm")]
    assert not [record for record in records if "planted" in record.getMessage()]


@pytest.mark.defect("A9")
def test_passwords_encoded_for_basic_authentication_are_masked_too() -> None:
    data = {
        "clients": {"c": {"provider": "openai", "base_url": "https://me:pa%24s@host/v1"}},
        "servers": {
            "s": {"url": "https://a", "headers": {"Authorization": "Basic bWU6c2VjcmV0LXB3"}}
        },
    }
    secrets = load_config(data, environ={}).secrets()
    assert {"bWU6cGEkcw==", "pa$s", "pa%24s"} <= set(secrets)
    assert {"bWU6c2VjcmV0LXB3", "me:secret-pw", "secret-pw", "Basic bWU6c2VjcmV0LXB3"} <= set(
        secrets
    )


@pytest.mark.defect("A8")
def test_environments_and_sets_of_secrets_do_not_show_their_contents() -> None:
    from rich.pretty import pretty_repr

    config = load_config(
        {"clients": {"c": {"provider": "openai", "api_key": "planted-1"}}}, environ={}
    )
    for thing in (
        read_environment(None, {"A": "planted-2"}),
        config.secrets(),
        config.high_confidence_secrets(),
    ):
        assert len(thing) >= 1
        assert "planted" not in repr(thing) + str(thing) + pretty_repr(thing) + pretty_repr([thing])


@pytest.mark.defect("A8")
def test_an_environment_must_be_a_mapping() -> None:
    with pytest.raises(CasualMcpError):
        load_config({}, environ=17)  # type: ignore[arg-type]
