"""The skills of one server: listed when they are first needed, read with their digests checked.

See https://modelcontextprotocol.io/seps/2640-skills-extension. The path of a file is only part of
its URI: nothing is written to a disk.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from casual_mcp_nb.base.binary import bytes_of
from casual_mcp_nb.base.mcp import SKILL_FILE, Skill, SkillContents, SkillFile
from casual_mcp_nb.errors import ResourceError, shown
from casual_mcp_nb.servers.convert import LISTED_TWICE, warn_left_out
from casual_mcp_nb.servers.redaction import Redactor, clean

if TYPE_CHECKING:
    from casual_mcp_nb.servers.mcp_session import McpSession


MAX_SKILLS = 500
"""How many skills of a server are listed."""
MAX_FILES = 500
MAX_BYTES = 2_000_000
"""The size of the largest file that is read."""
MAX_FRONTMATTER = 20_000
"""How many characters a skill's frontmatter may have as JSON."""
_MAX_PATH = 500


class _Request(Protocol):
    def __call__(
        self, request: str, send: Callable[[McpSession], Any], *, optional: bool = False
    ) -> Awaitable[Any]: ...


class ServerSkills:
    """Lists and reads one server's skills.

    Args:
        request: Sends a request in the server's session, see `ServerResources`.
        pages: Lists all pages of a listing.
    """

    def __init__(
        self,
        server: str,
        request: _Request,
        pages: Callable[[str, str], Awaitable[list[Any]]],
        redact: Redactor,
    ) -> None:
        self._server = server
        self._request = request
        self._pages = pages
        self._redact = redact
        self._entries: dict[str, tuple[str, dict[str, str]]] = {}
        self._accepted: dict[str, str] = {}
        self._changed: dict[str, str] = {}

    @property
    def changed(self) -> tuple[str, ...]:
        """The skills that the server has changed since they were first listed, unless somebody has
        accepted that.
        """
        return tuple(self._changed)

    def accept(self, name: str) -> bool:
        """Accept a skill as it is now. Return whether it had changed."""
        identity = self._changed.pop(name, None)
        if identity is None:
            return False
        self._accepted[name] = identity
        return True

    def _compare(self, skill: Skill) -> None:
        """Compare a skill with what it was when it was first listed: a server can change a file and
        its digest together.
        """
        identity = _identity(skill)
        if self._accepted.setdefault(skill.name, identity) == identity:
            self._changed.pop(skill.name, None)
        else:
            self._changed[skill.name] = identity

    async def list(self) -> tuple[Skill, ...]:
        """List the server's skills. Of several with the same name, the first counts."""
        listed = await self._pages("list its skills", "skills")
        skills: dict[str, Skill] = {}
        entries: dict[str, tuple[str, dict[str, str]]] = {}
        for entry in listed[:MAX_SKILLS]:
            skill, uris = self._converted(entry)
            problem = ""
            if skill.name in skills:
                problem = LISTED_TWICE
            elif len(json.dumps(skill.frontmatter)) > MAX_FRONTMATTER:
                problem = f"its frontmatter has more than {MAX_FRONTMATTER:,} characters"
            if problem:
                warn_left_out(self._server, skill.name, problem, "Skill")
                continue
            skills[skill.name], entries[skill.name] = skill, (entry.uri, uris)
            self._compare(skill)
        if len(listed) > MAX_SKILLS:
            warn_left_out(
                self._server,
                f"{len(listed) - MAX_SKILLS:,} more",
                f"at most {MAX_SKILLS} are listed",
                "Skills",
            )
        self._entries = entries
        return tuple(skills.values())

    async def read(self, skill: Skill, path: str = SKILL_FILE) -> SkillContents:
        """Read a file of a listed skill, and check its size and its digest.

        A file that has changed since it was listed is compared with the current listing.

        Raises:
            UnknownNameError: The skill has no such file.
            ResourceError: The server did not give it, or its contents differ from the listing.
        """
        file = skill.file(path)
        uri, uris = self._entries.get(skill.name, (skill.uri, {}))
        if file is not None and file.size > MAX_BYTES:
            raise self._error(
                skill, path, f"it has {file.size:,} bytes, and at most {MAX_BYTES:,} are read"
            )
        content, is_text = await self._contents(skill, path, uris.get(path, uri))
        if file is not None and (problem := _difference(content, file)):

            async def describe(session: McpSession) -> Any:
                return await session.sdk.get_skill(uri)

            entry = await self._request(f"describe skill {shown(skill.name)}", describe)
            skill, _ = self._converted(entry)
            self._compare(skill)
            file = skill.file(path)
            if file is None or (problem := _difference(content, file)):
                raise self._error(
                    skill, path, problem or "the server does not list its digest any more"
                )
        text = content.decode("utf-8") if is_text else _decoded(content)
        return SkillContents(
            self._server,
            skill.name,
            path,
            self._redact(text or ""),
            content if text is None else None,
            len(content),
            _digest(content),
            file is not None,
            tuple(each.path for each in skill.files if each.path != path),
            skill.name in self._changed,
        )

    async def _contents(self, skill: Skill, path: str, uri: str) -> tuple[bytes, bool]:
        """Fetch a file's bytes, and tell whether the server sent them as text."""
        from mcp_types import TextResourceContents

        async def read(session: McpSession) -> Any:
            return await session.sdk.read_resource(uri)

        parts = (
            await self._request(f"read {shown(path)} of skill {shown(skill.name)}", read)
        ).contents
        if len(parts) != 1:
            raise self._error(
                skill, path, f"the server sent {len(parts)} parts instead of one file"
            )
        if isinstance(parts[0], TextResourceContents):
            content, is_text = parts[0].text.encode("utf-8", "replace"), True
        else:
            if len(parts[0].blob) > 2 * MAX_BYTES:
                raise self._error(skill, path, f"the server sent more than {MAX_BYTES:,} bytes")
            try:
                content, is_text = bytes_of(parts[0].blob)[0], False
            except ValueError:
                raise self._error(skill, path, "its base64 text is not valid") from None
        if len(content) > MAX_BYTES:
            raise self._error(
                skill,
                path,
                f"the server sent {len(content):,} bytes, and at most {MAX_BYTES:,} are read",
            )
        return content, is_text

    def _converted(self, entry: Any) -> tuple[Skill, dict[str, str]]:
        """Convert an entry, and map the paths of its files to their URIs."""
        folder = entry.uri.rpartition("/")[0] + "/"
        files: dict[str, SkillFile] = {}
        uris: dict[str, str] = {}
        listed = entry.resources if isinstance(entry.resources, list) else ()
        for each in listed[:MAX_FILES]:
            path = _path_in(each.uri, folder)
            if path:
                files.setdefault(path, SkillFile(path, each.size, each.digest))
                uris.setdefault(path, each.uri)
        front = entry.frontmatter
        skill = Skill(
            self._server,
            front.name,
            clean(self._redact(front.description)),
            clean(self._redact(entry.uri)),
            tuple(sorted(files.values(), key=lambda file: (file.path != SKILL_FILE, file.path))),
            clean(self._redact(front.license or ""))[:200],
            clean(self._redact(front.compatibility or ""))[:500],
            self._redact.value(front.root),
        )
        return skill, uris

    def _error(self, skill: Skill, path: str, problem: str) -> ResourceError:
        text = (
            f"{shown(path)} of skill {shown(f'{self._server}:{skill.name}')} is refused: {problem}."
        )
        return ResourceError(
            text,
            hint="Tell the server's authors. The other skills can be read.",
            server=self._server,
        )


def _identity(skill: Skill) -> str:
    """Compute a hash of what a skill tells a model: its description, and the digests of its
    files.
    """
    files = sorted((file.path, file.digest) for file in skill.files)
    return _digest(json.dumps([skill.description, files]).encode("utf-8", "replace"))


def _path_in(uri: str, folder: str) -> str:
    """Find the path of a file in a skill's folder, or empty if it has none that is safe to show and
    to ask for.
    """
    if not uri.startswith(folder):
        return ""
    path = unquote(urlsplit(uri[len(folder) :]).path)
    parts = path.split("/")
    if len(path) <= _MAX_PATH and path == clean(path) and not {"", ".", ".."}.intersection(parts):
        return path
    return ""


def _difference(content: bytes, file: SkillFile) -> str:
    """Explain how a file's content differs from what the server lists, or return an empty text."""
    if len(content) != file.size:
        return f"the server sent {len(content):,} bytes, and lists {file.size:,}"
    digest = _digest(content)
    if digest == file.digest:
        return ""
    return f"its SHA-256 digest is {digest[7:19]}…, and the server lists {file.digest[7:19]}…"


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _decoded(content: bytes) -> str | None:
    try:
        if b"\0" in content:
            return None
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None
