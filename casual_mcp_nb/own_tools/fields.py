"""The options of a tool of the notebook. Imports nothing slow, because a session imports it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from casual_mcp_nb.base.config import Approval
    from casual_mcp_nb.base.tool import ToolAnnotations


class ToolFields(TypedDict, total=False):
    """The options of a tool of the notebook.

    Args:
        name: Its name; None for the function's.
        description: The description for models; None for the docstring without its list of arguments.
        inject: Values for parameters that no model sees, by the parameter's name or by the key of its `Inject`.
        annotations: Its effects; a destructive tool asks before each call.
        approval: When the person is asked before a call: `never`, `destructive`, `always`; None for the default.
    """

    name: str | None
    description: str | None
    inject: Mapping[str, Any] | None
    annotations: ToolAnnotations | None
    approval: Approval | None
