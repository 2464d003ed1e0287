"""`casual-mcp-nb sign-in` and `sign-out`: bundled servers' access to the person's accounts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from casual_mcp_nb.cli.terminal import tell

if TYPE_CHECKING:
    import asyncio

    from casual_mcp_nb.bundled.google_account import Account, SignIn


sign_in = App(name="sign-in", help="Give bundled servers access to your account.")
sign_out = App(name="sign-out", help="Revoke the bundled servers' access to an account.")
Grant = Literal["gmail-read", "gmail-send", "calendar", "calendar-read"]
ALL: tuple[Grant, ...] = ("gmail-read", "gmail-send", "calendar")
_MAX_REQUEST = 16_000
_MAX_SECONDS = 900
_PAGE = "<!doctype html><meta charset=utf-8><title>casual-mcp-nb</title><p>{text}</p>"


@sign_in.command(name="google")
def sign_in_google(
    *grants: Grant,
    client: Annotated[
        Path | None,
        Parameter(help="The file for your own desktop-app client, from Google's console."),
    ] = None,
) -> int:
    """Sign in to a Google account, for the servers gmail and calendar.

    An address is printed. Open it in a browser, on this computer or on another one.

    Args:
        grants: The servers' permissions: gmail-read, gmail-send, calendar (read and create events),
            calendar-read. Without any of them: gmail-read, gmail-send and calendar.
        client: See above. Kept for the next time.
    """
    import asyncio

    from casual_mcp_nb.base.files import MAX_ACCOUNT_BYTES, write_account_file
    from casual_mcp_nb.bundled import google_account

    file = client or google_account.client_file()
    if not file.is_file():
        raise google_account.SignInError(
            f"There is no client file {file}.",
            hint="Create one as in the guide Accounts, and name it: --client FILE",
        )
    account = asyncio.run(_signed_in(file, grants or ALL))
    if client is not None:
        write_account_file(
            google_account.client_file(), client.read_bytes()[:MAX_ACCOUNT_BYTES].decode()
        )
    print_line(
        f"Signed in as {account.email or 'an account without an address'}:"
        f" {', '.join(account.grants)}."
    )
    refused = [grant for grant in grants or ALL if grant not in account.grants]
    if refused:
        tell(f"Not granted: {', '.join(refused)}. Their tools will not be available.")
    return 0


@sign_in.command(name="anthropic")
def sign_in_anthropic() -> int:
    """Save an Anthropic admin key, for the server anthropic-usage.

    The key is not shown while you type or paste it.
    """
    from getpass import getpass

    from casual_mcp_nb.bundled.anthropic_usage_server import key_file, save_key

    try:
        save_key(getpass("Admin key (from https://console.anthropic.com/settings/admin-keys): "))
    except EOFError:
        tell("No key was given.")
        return 1
    except ValueError as error:
        tell(str(error))
        return 1
    print_line(f"Saved in {key_file()}, which only you can read.")
    return 0


@sign_out.command(name="google")
def sign_out_google() -> int:
    """Revoke the access at Google, and delete the tokens here."""
    from casual_mcp_nb.bundled import google_account

    account = google_account.account()
    revoked = google_account.sign_out()
    of_whom = f" of {account.email}" if account and account.email else ""
    print_line(f"Signed out{of_whom}: the tokens here are deleted.")
    if not revoked:
        tell(
            "Google did not confirm that they are revoked: remove the app at"
            " https://myaccount.google.com/connections"
        )
        return 1
    return 0


@sign_out.command(name="anthropic")
def sign_out_anthropic() -> int:
    """Delete the Anthropic admin key here.

    It stays valid until you delete it in Anthropic's console.
    """
    from casual_mcp_nb.bundled.anthropic_usage_server import key_file

    if not key_file().is_file():
        tell("There is no admin key.")
        return 1
    key_file().unlink()
    print_line(
        "The key is deleted here. To end it: https://console.anthropic.com/settings/admin-keys"
    )
    return 0


def print_line(text: str) -> None:
    """Write a line for the person to stdout."""
    import sys

    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def _signed_in(client: Path, grants: tuple[Grant, ...]) -> Account:
    """Sign in through a browser that reaches this computer, or through the address that the person
    pastes.
    """
    import asyncio

    from casual_mcp_nb.bundled.google_account import SignIn, SignInError

    redirected: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    listener = _Listener(redirected)
    server = await asyncio.start_server(listener.answer, "127.0.0.1", 0, limit=_MAX_REQUEST)
    async with server:
        port = server.sockets[0].getsockname()[1]
        flow = listener.flow = await asyncio.to_thread(
            SignIn, client, grants, f"http://127.0.0.1:{port}/"
        )
        print_line(f"Open this address in a browser:\n\n{flow.address}\n")
        pasted = asyncio.ensure_future(_pasted())
        try:
            async with asyncio.timeout(_MAX_SECONDS):
                await asyncio.wait({redirected, pasted}, return_when=asyncio.FIRST_COMPLETED)
                nobody_pastes = pasted.done() and pasted.exception() is not None
                if redirected.done() or nobody_pastes:
                    address = await redirected
                else:
                    address = pasted.result()
        except TimeoutError:
            raise SignInError("No one signed in within 15 minutes.") from None
        finally:
            pasted.cancel()
            await asyncio.wait({pasted})
    return await asyncio.to_thread(flow.finish, address)


async def _pasted() -> str:
    import contextvars

    from casual_mcp_nb.notebook.typed_lines import prompted

    line = ""
    while not line.strip():
        line = await prompted(
            "If the browser is on another computer, it ends at a page that it cannot load.\nThen"
            " copy the whole address of that page, which begins with http://127.0.0.1, and paste it"
            " here: ",
            contextvars.copy_context(),
        )
    return line


class _Listener:
    """Receives the browser when Google redirects it: `redirected` becomes the address.

    Requests without the sign-in's own state are turned away.
    """

    def __init__(self, redirected: asyncio.Future[str]) -> None:
        self._redirected = redirected
        self.flow: SignIn | None = None

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request with a page that shows the outcome."""
        import asyncio

        try:
            async with asyncio.timeout(10):
                head = await reader.readuntil(b"\r\n\r\n")
            target = head.split(b" ", 2)[1].decode("ascii")
            expected = (
                head.startswith(b"GET /") and self.flow is not None and self.flow.expects(target)
            )
            if expected and not self._redirected.done():
                self._redirected.set_result(target)
            status = "200 OK" if expected else "400 Bad Request"
            text = "This sign-in is not the one in progress."
            if expected:
                text = "Close this page and go back to the terminal."
            page = _PAGE.format(text=text)
            lines = (
                f"HTTP/1.1 {status}",
                "content-type: text/html",
                f"content-length: {len(page)}",
                "connection: close",
                "",
                page,
            )
            writer.write("\r\n".join(lines).encode())
            await writer.drain()
        except (
            TimeoutError,
            OSError,
            ValueError,
            IndexError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
        ):
            pass
        finally:
            writer.close()
