from __future__ import annotations

from typing import get_args

import pytest

from casual_mcp_nb.base.content import ResultFormat, bare_result, format_result, says_failed


@pytest.mark.parametrize("style", get_args(ResultFormat))
@pytest.mark.parametrize("text", ["done", "two\nlines", "a → b", "", "Error: it broke"])
def test_a_result_is_read_back_whatever_stands_before_it(style: ResultFormat, text: str) -> None:
    written = format_result(text, style, "desk__read", {"title": "a (b)", "n": 1})
    assert bare_result(written, "desk__read") == text
    assert says_failed(bare_result(written, "desk__read")) == text.startswith("Error")
