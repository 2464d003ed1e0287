"""The description of the API and the API agree, whatever is sent: requests made from the
description, valid and not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from kit.setups import MATH, OFFLINE
from schemathesis import GenerationMode

from casual_mcp_nb import Service, Session

CONFIG: dict[str, Any] = {
    **OFFLINE,
    "servers": {"math": MATH},
    "tool_sets": {"sums": {"servers": {"math": True}}},
}
ADDRESS_OF_AN_IMAGE = re.compile(r'"https?://')


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Session(CONFIG) as session, session.serve.http(port=0) as service:
        yield service


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(GenerationMode), ids=str)
def test_it_answers_as_described(service: Service, mode: GenerationMode) -> None:
    for operation in schemathesis.openapi.from_url(
        f"{service.url}/openapi.json"
    ).get_all_operations():

        @settings(
            max_examples=15,
            deadline=None,
            phases=[Phase.generate],
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(operation.ok().as_strategy(generation_mode=mode))
        def check(case: schemathesis.Case) -> None:
            body = json.dumps(case.as_transport_kwargs().get("json"), default=str)
            # Made-up addresses of images would be asked for outside this machine, and made-up tools
            # do not exist.
            assume(not ADDRESS_OF_AN_IMAGE.search(body) and '"tool_choice": "' not in body)
            response = case.call()
            # What is too large is refused before anything is checked, whatever else is wrong with
            # it.
            if mode is GenerationMode.POSITIVE or response.status_code != 413:
                case.validate_response(response)

        if mode is GenerationMode.POSITIVE or operation.ok().method == "post":
            check()


def test_its_example_is_answered(service: Service) -> None:
    description = httpx.get(f"{service.url}/openapi.json").json()
    (example,) = description["components"]["schemas"]["ChatRequest"]["examples"]
    assert httpx.post(f"{service.url}/chat", json=example).status_code == 200
    assert "planner" in json.dumps(description)


@pytest.mark.parametrize("field", ["temperature", "top_p", "seed", "max_tokens", "max_steps"])
def test_true_is_not_a_number(service: Service, field: str) -> None:
    request = {"model": "planner", "messages": [{"role": "user", "content": "What is 2 + 3?"}]}
    answer = httpx.post(f"{service.url}/chat", json=request | {field: True})
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]
