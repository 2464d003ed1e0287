"""Variables that come to more than the memory holds are refused before they are put in."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from casual_mcp_nb.config.environment import MAX_ALL, MAX_VALUE, read_environment
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.errors import ConfigError

LARGE = {"A": "x" * 100_000}
SERVER = {"command": "server"}


@pytest.mark.defect("B10")
@pytest.mark.parametrize(
    "config",
    [
        {"servers": {"s": SERVER | {"env": {"V": "${A}" * 10_000}}}},
        {"servers": {"s": SERVER | {"args": ["${A}"] * 10_000}}},
        {"servers": {"s": SERVER | {"args": ["${A:-none}" * 10_000]}}},
    ],
    ids=["in one text", "in many texts", "with a default"],
)
def test_variables_that_come_to_too_much_are_refused_with_their_place(
    config: dict[str, object],
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(config, environ=LARGE)
    assert "servers.s." in str(caught.value)
    assert any(f"{most:,}" in str(caught.value) for most in (MAX_ALL, MAX_VALUE))
    assert len(str(caught.value)) < 10_000


@pytest.mark.defect("B10")
def test_a_large_variable_is_put_in_where_it_fits() -> None:
    config = load_config({"servers": {"s": SERVER | {"env": {"V": "${A}" * 9}}}}, environ=LARGE)
    assert len(config.servers["s"].env["V"].get_secret_value()) == 900_000


def test_entries_of_an_env_file_that_double_are_left_out_when_they_become_too_large(
    tmp_path: Path,
) -> None:
    lines = [
        "V0=xxxxxxxxxx",
        *(f"V{n}=${{V{n - 1}}}${{V{n - 1}}}" for n in range(1, 60)),
        "LAST=last",
    ]
    (tmp_path / ".env").write_text("\n".join(lines))
    environ = read_environment(tmp_path, {})
    assert environ["V3"] == "x" * 80
    assert environ["LAST"] == "last"
    assert "V59" not in environ
    assert sum(map(sys.getsizeof, environ.values())) < 3 * MAX_ALL
