"""One rule for all tests: nobody holds an event loop for longer than 250 ms. A test that does so on purpose is marked
`@pytest.mark.holds_the_loop("why")`."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from kit.loop_guard import LoopGuard

GUARD = LoopGuard()


def pytest_sessionstart() -> None:
    GUARD.start()


def pytest_sessionfinish() -> None:
    GUARD.stop()


def _checked(item: pytest.Item) -> Generator[None, object, object]:
    result = yield
    held = GUARD.take()
    if held and item.get_closest_marker("holds_the_loop") is None:
        pytest.fail("The event loop was held.\n" + "\n".join(map(str, held[:5])), pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _checked(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _checked(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _checked(item))
