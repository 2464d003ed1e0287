"""A reverse proxy on loopback that takes a prefix off the path, and passes everything on
immediately.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
from kit.scripted_http import Reply, Request, ScriptedHttp


class ReverseProxy(ScriptedHttp):
    """Passes requests below a prefix on to a service, with the headers that proxies add.

    Args:
        target: The address of the service.
        prefix: The beginning of the path that the service does not see.
    """

    def __init__(self, target: str, prefix: str) -> None:
        super().__init__(self._pass_on)
        self._prefix = prefix
        self._client = httpx.Client(base_url=target, timeout=30)

    def stop(self) -> None:
        super().stop()
        self._client.close()

    def _pass_on(self, request: Request) -> Reply:
        own = {"content-length", "connection", "accept-encoding"}
        headers = {name: value for name, value in request.headers.items() if name not in own}
        headers |= {
            "x-forwarded-for": "203.0.113.7",
            "x-forwarded-proto": "https",
            "x-forwarded-prefix": self._prefix,
        }
        content = None if request.body is None else json.dumps(request.body).encode()
        sent = self._client.build_request(
            request.method,
            request.path.removeprefix(self._prefix),
            headers=headers,
            content=content,
        )
        response = self._client.send(sent, stream=True)
        return Reply(
            response.status_code,
            _pieces(response),
            {"content-type": response.headers["content-type"]},
        )


def _pieces(response: httpx.Response) -> Iterator[Any]:
    try:
        yield from response.iter_raw()
    finally:
        response.close()
