"""A session on other loops and in other frameworks: uvloop, FastAPI, Dask."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kit.scripts import run_script
from kit.setups import OFFLINE

from casual_mcp_nb import Session

CONFIG: dict[str, Any] = {
    **OFFLINE,
    "servers": {"math": {"bundled": "math", "init_timeout": 60}},
}
pytestmark = [pytest.mark.defect("A10"), pytest.mark.timeout(150)]


@pytest.mark.parametrize("how", ["uvloop.run(main())", "uvloop.install(); asyncio.run(main())"])
@pytest.mark.slow
def test_a_session_is_awaited_on_uvloop_and_runs_where_uvloop_is_the_policy(how: str) -> None:
    pytest.importorskip("uvloop")
    code = f"""
        import asyncio, uvloop, warnings
        warnings.simplefilter("ignore")
        from casual_mcp_nb import Session
        async def main():
            async with Session.from_config({CONFIG!r}) as session:
                print((await session.chat_async("What is 17 * 23 + 4?")).answer)
                print(len([event async for event in session.stream("What is 2 + 3?")]) > 3)
        {how}
    """
    done = run_script(code)
    assert (done.returncode, done.stderr) == (0, "")
    assert "395" in done.stdout
    assert "True" in done.stdout


@pytest.fixture
def fastapi() -> Any:
    """FastAPI, imported before there is a loop that it would hold."""
    pytest.importorskip("httpx")
    return pytest.importorskip("fastapi")


async def test_fastapi_awaits_a_session_and_calls_it_from_its_threads(fastapi: Any) -> None:
    import httpx

    async with Session.from_config(CONFIG) as session:
        app = fastapi.FastAPI()

        @app.get("/ask")
        async def ask(text: str) -> str:
            return (await session.chat_async(text)).answer

        @app.get("/add")
        def add(a: int, b: int) -> str:
            return session.tools.call("math:add", a=a, b=b).result or ""

        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
            answers = await asyncio.gather(
                client.get("/ask", params={"text": "What is 17 * 23 + 4?"}, timeout=60),
                *(client.get("/add", params={"a": n, "b": 1}, timeout=60) for n in range(4)),
            )
    assert "395" in answers[0].json()
    assert [answer.json() for answer in answers[1:]] == ["1", "2", "3", "4"]


@pytest.mark.slow
def test_a_dask_task_creates_a_session_and_cannot_receive_one() -> None:
    pytest.importorskip("distributed")
    code = f"""
        from distributed import Client, LocalCluster
        from casual_mcp_nb import Session
        CONFIG = {CONFIG!r}
        def task(n):
            with Session.from_config(CONFIG) as session:
                return session.tools.call("math:add", a=n, b=1).result
        if __name__ == "__main__":
            with LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=None) as cluster, Client(cluster) as client:
                print(client.gather(client.map(task, range(3))))
                session = Session.from_config(CONFIG)
                try:
                    client.submit(lambda: session.connect()).result()
                except Exception as error:
                    while error is not None:
                        print(type(error).__name__, "from_config" in str(error))
                        error = error.__cause__ or error.__context__
                session.close()
    """
    done = run_script(code)
    assert done.returncode == 0, done.stderr
    assert "['1', '2', '3']" in done.stdout
    assert "UsageError True" in done.stdout
