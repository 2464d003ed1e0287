"""The person's own price table: in the config, in a file that it names, or in `prices.json` beside
it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.base.prices import Price
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.config.price_file import read_prices
from casual_mcp_nb.errors import ConfigError, MissingFileError
from casual_mcp_nb.providers.factory import ModelFactory

TABLE = {"gpt": {"input": 2, "output": 8, "cached_input": 0.5, "currency": "EUR"}}
PRICE = Price(input=2, output=8, cached_input=0.5, currency="EUR")


def load(folder: Path, config: dict[str, Any], **files: Any) -> Config:
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content, indent=1)
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return load_config(folder / "config.json", environ={})


def test_prices_come_from_the_config_a_named_file_or_a_file_beside_it(tmp_path: Path) -> None:
    assert load(tmp_path, {"prices": TABLE}).prices == {"gpt": PRICE}
    assert load(tmp_path, {"prices": "mine.json"}, mine=TABLE).prices == {"gpt": PRICE}
    assert load(tmp_path, {}, prices=TABLE).prices == {"gpt": PRICE}
    assert load(tmp_path, {"prices": {}}, prices=TABLE).prices == {}


def test_a_config_made_in_python_has_the_prices_that_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prices.json").write_text(json.dumps(TABLE))
    assert load_config({}, environ={}).prices == {}
    assert (
        load_config({"prices": "prices.json"}, environ={}).prices
        == load_config({"prices": TABLE}, environ={}).prices
    )


def test_a_model_gets_the_price_under_its_name_or_the_name_of_the_provider() -> None:
    models = {
        "a": {"client": "o", "model": "gpt"},
        "gpt": {"client": "o", "model": "b"},
        "c": {"client": "o", "model": "c"},
    }
    config = load_config(
        {"clients": {"o": {"provider": "offline"}}, "models": models, "prices": TABLE}, environ={}
    )
    factory = ModelFactory(config)
    assert [factory.chat_model(name).price for name in models] == [PRICE, PRICE, None]
    assert factory.chat_model(factory.get_model("a")).price == PRICE


BROKEN = {
    "not JSON": ("{", 1, 2, None),
    "a missing price": ('{"m": {"input": 1}}', 1, 2, "m.output"),
    "a text": ('{\n "m": {"input": "much", "output": 1}}', 2, 8, "m.input"),
    "a price below nothing": ('{"m": {"input": -1, "output": 1}}', 1, 8, "m.input"),
    "an unknown key": ('{"m": {"input": 1, "ouput": 1, "output": 1}}', 1, 20, "m.ouput"),
    "a number for a model": ('{"m": 3}', 1, 2, "m"),
    "the same model twice": (
        '{"m": {"input": 1, "output": 1}, "m": {"input": 1, "output": 1}}',
        1,
        34,
        "m",
    ),
}


@pytest.mark.parametrize(("text", "line", "column", "key"), BROKEN.values(), ids=BROKEN)
def test_a_broken_table_is_refused_with_its_location_and_a_remedy(
    tmp_path: Path, text: str, line: int, column: int, key: str | None
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, {}, prices=text)
    error = caught.value
    assert (error.path, error.line, error.column, error.key) == (
        str(tmp_path / "prices.json"),
        line,
        column,
        key,
    )


def test_the_shape_of_a_table_and_the_key_that_was_meant_are_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"mean 'output'\?.* per million"):
        read_prices({"m": {"input": 1, "ouput": 1}})
    with pytest.raises(ConfigError, match="per million tokens"):
        read_prices(3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="in one currency"):
        read_prices(
            {"m": {"input": 1, "output": 1}, "n": {"input": 1, "output": 1, "currency": "EUR"}}
        )


def test_an_unrelated_file_beside_the_config_is_ignored_if_the_config_says_so(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match=r'"prices": \{\}'):
        load(tmp_path, {}, prices={"apples": 3})
    assert load(tmp_path, {"prices": {}}, prices={"apples": 3}).prices == {}


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"mine\.json"):
        load(tmp_path, {"prices": "mine.json"})


def test_an_endless_name_of_a_price_file_is_cut_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, {"prices": "x" * 100_000})
    assert len(str(caught.value)) < 6_000


def test_a_wrong_price_in_the_config_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, {"prices": {"m": {"input": 1, "output": "x"}}})
    assert caught.value.key == "prices.m.output"
    assert caught.value.path == str(tmp_path / "config.json")
