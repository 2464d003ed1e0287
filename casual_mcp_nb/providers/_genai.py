"""Google's SDK with our own HTTP client, which sees the server's response even if the SDK fails on it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextvars import ContextVar
from typing import TYPE_CHECKING

from casual_mcp_nb.providers._answers import InvalidResponse, Reported

if TYPE_CHECKING:
    from google.genai import types
    from httpx2 import Request, Response

answering: ContextVar[Response | None] = ContextVar("answering", default=None)
"""The HTTP response that the current task reads, which the SDK does not expose."""


_REPLACED = "-"
"""What the SDK requires as the conversation, before `extra_body` replaces it."""


class GenaiConnection:
    """The SDK, with an HTTP client that does not follow redirects, because the key would be sent along.

    Args:
        api_key: The key.
        base_url: The address.
        timeout: Seconds without data.
        headers: HTTP headers for each request.
    """

    def __init__(self, api_key: str, base_url: str, timeout: float, headers: dict[str, str]) -> None:
        import httpx2
        from google.genai import Client, types

        async def limit_silence(request: Request) -> None:
            # The SDK's own timeout would also be sent to the server, as the limit of a whole answer.
            request.extensions["timeout"] = httpx2.Timeout(timeout).as_dict()

        async def note(response: Response) -> None:
            answering.set(response)
            if not (response.is_error or _streams(response)):
                await response.aread()

        trusted = httpx2.create_ssl_context()
        self.api_key = api_key
        # The SDK would only notice an invalid URL in the first request.
        self.base_url = str(httpx2.URL(base_url))
        self._client = httpx2.AsyncClient(
            verify=trusted, event_hooks={"request": [limit_silence], "response": [note]}, headers=headers
        )
        options = types.HttpOptions(
            base_url=self.base_url,
            headers=headers,
            httpx_async_client=self._client,
            # Never used; the SDK would load the trusted certificates again for it.
            httpx_client=httpx2.Client(verify=trusted),
            retry_options=types.HttpRetryOptions(attempts=1),
        )
        self.models = Client(api_key=api_key, vertexai=False, http_options=options).aio.models
        # The SDK's classes are built on first use, which takes too long on the event loop.
        types.GenerateContentConfig(tools=[types.Tool(function_declarations=[])])
        types.GenerateContentResponse.model_validate({"candidates": [{"content": {"parts": [{"text": ""}]}}]})

    async def close(self) -> None:
        """Close its connections."""
        await self._client.aclose()

    async def generate(
        self, model: str, config: types.GenerateContentConfig, *, stream: bool
    ) -> AsyncGenerator[types.GenerateContentResponse]:
        """Yield the chunks of an answer, or the complete one.

        Args:
            model: The model.
            config: The settings of the request, with the conversation in its `extra_body`.
            stream: Whether to stream the answer.

        Raises:
            InvalidResponse: The response is not an answer.
            Reported: An error arrived within a stream.
        """
        from google.genai import errors

        answering.set(None)
        answers = False
        try:
            if stream:
                async for chunk in await self.models.generate_content_stream(model=model, contents=_REPLACED, config=config):
                    answers |= _is_of_an_answer(chunk)
                    yield chunk
            else:
                whole = await self.models.generate_content(model=model, contents=_REPLACED, config=config)
                answers = _is_of_an_answer(whole)
                yield whole
            if not answers and (sent := _body(answering.get())) is not None:
                raise InvalidResponse(sent)
        except json.JSONDecodeError:
            raise
        except errors.APIError as error:
            if getattr(error.response, "is_error", False):
                raise
            raise Reported(error.details.get("error", error.details), error.code) from None
        except (errors.UnknownApiResponseError, ValueError, TypeError, AttributeError, RecursionError) as error:
            # The SDK fails in many ways on anything that is neither an answer nor one of Google's errors.
            response = answering.get()
            if response is not None and response.is_error:
                response.raise_for_status()
            raise InvalidResponse(_body(response) or str(error)) from None
        finally:
            if (response := answering.get()) is not None:
                await response.aclose()


def _is_of_an_answer(response: types.GenerateContentResponse) -> bool:
    return bool(response.candidates or response.prompt_feedback)


def _body(response: Response | None) -> str | None:
    """Read the body sent instead of an event stream; None for a stream."""
    return None if response is None or _streams(response) else response.text


def _streams(response: Response) -> bool:
    return "event-stream" in response.headers.get("content-type", "")
