"""`casual-mcp-nb check`, `doctor` and `migrate-config`: check a config, or convert another
host's.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from casual_mcp_nb.cli import FAILED, exit_code
from casual_mcp_nb.cli.terminal import (
    DEFAULT_CONFIG,
    AsJson,
    Flag,
    Source,
    connect,
    show,
    show_diff,
    tell,
    write_json,
)
from casual_mcp_nb.errors import ConfigError, UsageError, shown

if TYPE_CHECKING:
    import asyncio

    from casual_mcp_nb.base.status import Check
    from casual_mcp_nb.bundled.google_account import Account, SignIn
    from casual_mcp_nb.config.migration import MigratedConfig
    from casual_mcp_nb.session import Session


ConfigFile = Annotated[Path, Parameter(alias="-c")]
_OF_A_CONFIG = (
    "Model SDKs",
    "Commands",
    "Config",
    "Keys",
    "Prices",
    "Servers",
    "Toolsets",
    "Templates",
)


def check(
    config: ConfigFile = DEFAULT_CONFIG,
    *,
    connect: Flag = False,
    keys: bool = True,
    trust: Flag = False,
    json: AsJson = False,
) -> int:
    """Check a config: keys and names, the programs that its servers need, toolsets, templates.

    Fails if something is wrong.

    Nothing is started without --connect.

    Args:
        config: The config file.
        connect: Start the servers too, and check that they have the tools that toolsets name.
        keys: Whether a missing API key fails.
        trust: With --connect, start the config's servers although you have not accepted it yet.
    """
    try:
        loaded = Source(config, trust=trust).load()
    except ConfigError as error:
        if not json:
            raise
        write_json({"ok": False, "error": str(error), "checks": []})
        return FAILED
    with Source(config, trust=trust).open(loaded, starts=connect) as session:
        checks = [each for each in _checks(session, connect) if each.part in _OF_A_CONFIG]
    if not connect:
        checks = [each for each in checks if each.part != "Servers" or each.verdict != "ok"]
    if not keys:
        for number, each in enumerate(checks):
            if each.part == "Keys":
                checks[number] = replace(each, verdict="warn")
    return _report(checks, json)


def doctor(
    config: ConfigFile = DEFAULT_CONFIG,
    *,
    connect: Flag = False,
    demo: Flag = False,
    trust: Flag = False,
    tool: Annotated[str | None, Parameter(alias="-t")] = None,
    query: Annotated[str | None, Parameter(alias="-q")] = None,
    json: AsJson = False,
) -> int:
    """Check everything that a session needs: packages, keys, programs, servers.

    Exits with 1 if a required check fails.

    With --tool: how far a tool gets, listed by its server, selected, searchable, sent to the model.
    Fails if it is stopped.

    Args:
        config: The config file.
        tool: A tool, such as math:add, or a server for all its tools. Starts the servers.
        query: With --tool, words that a model might search for. Adds the rank.
        connect: Start the servers too.
        demo: Check the bundled demo servers instead of a config.
        trust: With --connect, start the config's servers although you have not accepted it yet.
    """
    if query is not None and tool is None:
        raise UsageError(
            "Which tool should the query find?",
            hint="For example: casual-mcp-nb doctor --tool math:add -q sum",
        )
    with Source(config, demo=demo, trust=trust).open(starts=connect or tool is not None) as session:
        if tool is not None:
            return _report_on_tool(session, tool, query, json)
        return _report(list(_checks(session, connect)), json)


def _report_on_tool(session: Session, name: str, query: str | None, json: bool) -> int:
    connect(session)
    diagnosis = session.servers.doctor(name, query)
    if json:
        write_json(diagnosis.as_dict())
    else:
        show(diagnosis)
    return exit_code(not diagnosis.stopped)


def _checks(session: Session, connected: bool) -> Iterator[Check]:
    from casual_mcp_nb.base.status import Check

    if connected:
        connect(session)
    yield from session.servers.doctor()
    for name in session.tools.sets if connected else ():
        try:
            session.selection.tool_set = name
        except UsageError as error:
            yield Check("Toolsets", name, "fail", str(error))
        else:
            yield Check("Toolsets", name, "ok", "its servers and tools exist")


def _report(checks: list[Check], json: bool) -> int:
    from casual_mcp_nb.base.status import Diagnosis

    diagnosis = Diagnosis(tuple(checks))
    if json:
        write_json({"ok": diagnosis.ok, "error": None, "checks": [asdict(each) for each in checks]})
    else:
        show(diagnosis)
    if not diagnosis.ok:
        tell(f"{sum(each.verdict == 'fail' for each in checks)} of {len(checks)} checks failed.")
    return exit_code(diagnosis.ok)


def migrate_config(
    source: Path = DEFAULT_CONFIG,
    output: Path | None = None,
    /,
    *,
    overwrite: Annotated[bool, Parameter(negative=())] = False,
    dry_run: Flag = False,
    json: AsJson = False,
) -> int:
    """Convert a config from casual-mcp, Claude Desktop, VS Code, Cursor or another MCP host, and
    show the differences.

    A config from casual-mcp before 1.0, whose models name a provider instead of a client, is
    converted in place. Only clients and models change. Any other file is left alone, and its
    secrets are not copied. The new file refers to environment variables instead. They are listed,
    and so is everything that gets lost.

    Args:
        source: The old file.
        output: The new file. By default casual_mcp_config.json, or the old file if it is from
            casual-mcp before 1.0.
        overwrite: Replace the new file if it exists.
        dry_run: Write nothing.
    """
    from casual_mcp_nb.base.files import write_text
    from casual_mcp_nb.config.loader import check_config
    from casual_mcp_nb.config.migration import is_legacy_file, migrated, migrated_in_place
    from casual_mcp_nb.config.saving import replace_text

    source = source.expanduser()
    legacy = is_legacy_file(source)
    if output is None:
        output = source if legacy else DEFAULT_CONFIG
    output = output.expanduser()
    same = output.exists() and output.samefile(source)
    in_place = legacy and same
    if in_place:
        new = migrated_in_place(source)
    else:
        new = migrated(source, output.absolute().parent)
    environ = {**dict.fromkeys(new.references, "stand-in"), **os.environ}
    check_config(new.text, output, environ=environ, source=new.source)
    exists = output.exists()
    before = _text_of(output) if exists else ""
    done = same and not legacy and not new.of_host
    refused = exists and not (overwrite or dry_run or in_place or done)
    shown_before = _without_secrets(output, before) if exists else ""
    if not (refused or dry_run or done):
        if exists:
            replace_text(output.resolve(), before, new.text)
        else:
            write_text(output, new.text, overwrite=False, hint="")
    if json:
        variables = [{"name": name, "was": where} for name, where in new.variables.items()]
        written = None if refused or dry_run or done else str(output)
        write_json(
            {
                "config": new.data,
                "notes": list(new.notes),
                "variables": variables,
                "written": written,
            }
        )
    elif not done:
        _show(output, shown_before, new)
    if done:
        tell(f"{shown(output)} already has the current format. Nothing was changed.")
    elif refused:
        tell(
            f"{shown(output)} exists and was not changed. Replace it with --overwrite, or name"
            " another file."
        )
    elif dry_run:
        if before == new.text:
            tell(f"{shown(output)} would stay as it is.")
        else:
            tell("Nothing was written.")
    else:
        tell(f"Written: {shown(output)}. Next: casual-mcp-nb check {output}")
    return exit_code(not refused)


def _show(output: Path, before: str, new: MigratedConfig) -> None:
    from casual_mcp_nb.base.secret import redacted

    after = redacted(new.text, new.secrets)
    old, new_name = os.devnull, str(output)
    if before:
        old = new_name
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), old, new_name, lineterm=""
    )
    show_diff(lines)
    for note in new.notes:
        tell(note)
    for name, where in new.variables.items():
        tell(f"Set {name} in the environment or in .env: it was at {where}.")


def _text_of(path: Path) -> str:
    from casual_mcp_nb.config.document import read_text

    return read_text(path)


def _without_secrets(path: Path, text: str) -> str:
    """Remove the secrets from a config's text. Anything that is not a config becomes empty."""
    from casual_mcp_nb.base.secret import redacted
    from casual_mcp_nb.config.migration import migrated

    try:
        secrets = migrated(path, path.absolute().parent).secrets
    except ConfigError:
        return ""
    return redacted(text, secrets)


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
