"""Options as keyword arguments, each declared once, and signatures that list them.

Imports nothing slow.
"""

# Without postponed annotations: the metadata in `Annotated` is read.
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ForwardRef,
    Never,
    ParamSpec,
    TypedDict,
    TypeVar,
    cast,
)

from casual_mcp_nb.base.model_options import (
    DELIVERY_SETTINGS,
    DeliverySetting,
    Flag,
    ModelOptions,
    flags_of,
    in_order,
)
from casual_mcp_nb.errors import UnknownNameError

if TYPE_CHECKING:
    from casual_llm import Model

    from casual_mcp_nb.base.config import Approval, Discovery, Strategy, ToolSetConfig
    from casual_mcp_nb.base.tool import ToolAnnotations
    from casual_mcp_nb.engine.edits import BeforeModelCall
    from casual_mcp_nb.providers.chat_model import ChatModel


P = ParamSpec("P")
T = TypeVar("T")


def spelled_out(options: type[Any]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Create a decorator that lists the options in the signature of a method which takes them as
    `**options: Unpack[options]`.

    `?` and completion then show them, and any other keyword argument raises `UnknownNameError` at
    the call, before any work begins.
    """

    def decorate(method: Callable[P, T]) -> Callable[P, T]:
        signature = _spelled_out(inspect.signature(method), options)
        names = []
        for name, parameter in signature.parameters.items():
            if parameter.kind is not parameter.POSITIONAL_ONLY:
                names.append(name)
        if names[:1] == ["self"]:
            del names[0]
        option_names = frozenset(names)

        def refuse(kwargs: Mapping[str, Any]) -> Never:
            unknown = next(name for name in kwargs if name not in option_names)
            raise UnknownNameError("option", unknown, names)

        @functools.wraps(method)
        def called(*args: P.args, **kwargs: P.kwargs) -> T:
            if not option_names.issuperset(kwargs):
                refuse(kwargs)
            return method(*args, **kwargs)

        @functools.wraps(method)
        async def awaited(*args: P.args, **kwargs: P.kwargs) -> Any:
            if not option_names.issuperset(kwargs):
                refuse(kwargs)
            return await cast("Any", method)(*args, **kwargs)

        # A coroutine function must be recognisable as one.
        decorated: Any = awaited if inspect.iscoroutinefunction(method) else called
        decorated.__signature__ = signature
        return cast("Callable[P, T]", decorated)

    return decorate


def _spelled_out(signature: inspect.Signature, options: type[Any]) -> inspect.Signature:
    listed = []
    for name, annotation in in_order(options).items():
        if name not in signature.parameters:
            listed.append(
                inspect.Parameter(
                    name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=None,
                    annotation=_plain(annotation),
                )
            )
    return _with_keywords(signature, listed)


def _with_keywords(
    signature: inspect.Signature, listed: Sequence[inspect.Parameter]
) -> inspect.Signature:
    """Put these parameters in place of `**options`."""
    own = []
    for parameter in signature.parameters.values():
        if parameter.kind is not parameter.VAR_KEYWORD:
            own.append(parameter)
    return signature.replace(parameters=[*own, *listed])


def _plain(annotation: Any) -> Any:
    """Leave out the metadata of an annotation, and convert a reference to its text."""
    if hasattr(annotation, "__metadata__"):
        annotation = annotation.__origin__
    return annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else annotation


class TurnFields(ModelOptions, total=False):
    """The keyword-only options for `McpToolChat.chat`."""

    template: Annotated[str | None, Flag("the template of the system prompt for this turn", "NAME")]
    variables: Mapping[str, Any] | None
    context: Mapping[str, Any] | None
    discovery: Annotated[
        "Discovery | None",
        Flag("send all tools with every request", name="--no-discovery", value=False),
    ]
    strategy: Annotated[
        "Strategy | None", Flag("how the model finds deferred tools", "search|browse")
    ]
    delivery: Annotated[
        DeliverySetting | None,
        Flag("how the model receives search results", "|".join(DELIVERY_SETTINGS)),
    ]
    max_steps: Annotated[int | None, Flag("maximum number of model calls", "N", int, least=1)]
    stream: bool | None
    mock: Mapping[str, Any] | None
    repair_calls: Annotated[
        bool | None,
        Flag("run calls that the model writes as text", name="--repair-calls", value=True),
    ]


class NamedTurnFields(TurnFields, total=False):
    """All options for a turn: these, and those that `McpToolChat.chat` also accepts by position."""

    model: Annotated["str | Model | ChatModel | None", Flag("the model for this turn", "NAME")]
    tool_set: Annotated[
        "str | ToolSetConfig | None", Flag("the toolset for this turn", "NAME", name="--toolset")
    ]
    system: Annotated[str | None, Flag("the system prompt for this turn", "TEXT")]
    meta: Mapping[str, Any] | None


IN_CASSETTES = ("max_steps", "stream")
"""The options that a cassette keeps as they were given, besides those for the model."""

LEAST = {
    option: flag.least
    for option, flag in flags_of(NamedTurnFields).values()
    if flag.least is not None
}
"""The least values of the options that are whole numbers, by the option's name."""

SWITCHES = tuple(
    option
    for option, annotation in in_order(NamedTurnFields).items()
    if option not in ModelOptions.__annotations__
    and getattr(annotation, "__origin__", annotation) == (bool | None)
)
"""The options that are true or false."""


class ChatOptions(NamedTurnFields, total=False):
    """One turn's options, as keyword arguments for `chat` and its variants. See `Session.chat`."""

    step: "bool | BeforeModelCall | None"
    attach: Annotated[Any, Flag("a resource to add to the message", "URI")]


class ToolFields(TypedDict, total=False):
    """A notebook tool's options.

    Args:
        name: Its name, or None for the function's.
        description: The description for models, or None for the docstring without its argument
            list.
        inject: Values for parameters that no model sees, by the parameter's name or by its `Inject`
            key.
        annotations: Its effects. A destructive tool asks before each call.
        approval: When to ask the person before a call: `never`, `destructive`, `always`, or None
            for the default.
    """

    name: str | None
    description: str | None
    inject: Mapping[str, Any] | None
    annotations: "ToolAnnotations | None"
    approval: "Approval | None"


def list_options(method: Any, options: type[Any], like: Callable[..., Any]) -> None:
    """List the options in the signature of a class method which takes them as `**options`, as far
    as another callable has them too. Unlike `spelled_out`, this does not check names.
    """
    signature, parameters = inspect.signature(method.__func__), inspect.signature(like).parameters
    listed = [parameters[name] for name in parameters if name in options.__annotations__]
    method.__func__.__signature__ = _with_keywords(signature, listed)
