"""Find the hidden parts of a page or mail: by its styles, not only by attributes of an element."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lxml.html import HtmlElement

Color = tuple[int, int, int]
Declarations = Mapping[str, str]

_MAX_STYLES = 200_000
_MAX_RULES = 5_000
_MAX_INLINE = 1_000
_MAX_CLASSES = 30
_MAX_IN_LINK = 100
_ALIKE = 16
"""Colors whose channels differ by no more than this cannot be told apart."""

_BLACK, _WHITE, _LINK = (0, 0, 0), (255, 255, 255), (0, 0, 238)
_NAMED: dict[str, Color] = {
    **{"black": _BLACK, "white": _WHITE, "snow": (255, 250, 250), "ivory": (255, 255, 240), "ghostwhite": (248, 248, 255)},
    **{"whitesmoke": (245, 245, 245), "floralwhite": (255, 250, 240), "red": (255, 0, 0), "blue": (0, 0, 255)},
    **{"gray": (128, 128, 128), "grey": (128, 128, 128), "silver": (192, 192, 192), "navy": (0, 0, 128)},
    **{"green": (0, 128, 0), "yellow": (255, 255, 0), "orange": (255, 165, 0), "purple": (128, 0, 128)},
}
_SELECTOR = re.compile(r"([a-z][a-z0-9]*|\*)?([.#][\w-]+)?", re.IGNORECASE)
_ZERO = re.compile(r"[+-]?0*\.?0*(?![\d.])")
_LENGTH = re.compile(r"(-?\d{1,9})(?:\.\d{1,9})?\s*([a-z%]*)", re.IGNORECASE)
_HEX = re.compile(r"#([0-9a-f]{3,8})\b", re.IGNORECASE)
_RGB = re.compile(r"rgba?\(([^()]{1,80})\)", re.IGNORECASE)
_MOVED = re.compile(r"translate(?:3d|x|y)?\(([^()]{1,80})\)", re.IGNORECASE)
_NOTHING = re.compile(r"scale[xy3d]{0,2}\(\s*0*\.?0*\s*[,)]", re.IGNORECASE)
_CLIPPED = re.compile(r"rect\(\s*0(?:px)?[\s,]+0|inset\(\s*(?:50|100)%|circle\(\s*0", re.IGNORECASE)
_ALPHA_ZERO = re.compile(r"\b(?:rgba|hsla)\([^()]{1,60}[,/]\s*0*\.?0*%?\s*\)|^#(?:[0-9a-f]{3}0|[0-9a-f]{6}00)$", re.IGNORECASE)


@dataclass(frozen=True)
class _Inherited:
    """The properties that an element inherits from those around it.

    Args:
        tiny: Whether its text has the size 0.
        invisible: Whether its text is not drawn.
        color: The color of its text; None if it is not known.
        background: The color behind it; None if it is not known, as with an image.
        transparent: Whether its text is drawn without a color.
    """

    tiny: bool = False
    invisible: bool = False
    color: Color | None = _BLACK
    background: Color | None = _WHITE
    transparent: bool = False

    @property
    def is_hidden(self) -> bool:
        if self.tiny or self.invisible or self.transparent:
            return True
        if self.color is None or self.background is None:
            return False
        return all(abs(a - b) <= _ALIKE for a, b in zip(self.color, self.background, strict=True))


def remove_hidden(tree: HtmlElement, linked_styles: bool) -> None:
    """Remove the text that a reader does not see, and the elements that are not shown at all.

    Args:
        tree: The page with its `style` elements; it is changed.
        linked_styles: Whether stylesheets in other files are loaded: then the background is not known unless the page says it.
    """
    rules = _Rules("\n".join(style.text or "" for style in tree.iter("style"))[:_MAX_STYLES])
    linked = linked_styles and any("stylesheet" in link.get("rel", "").lower() for link in tree.iter("link"))
    stack = [(tree, _Inherited(background=None if linked else _WHITE))]
    left_out, links = [], []
    while stack:
        element, around = stack.pop()
        declared = rules.of(element)
        if "hidden" in element.attrib or (declared and _is_not_shown(declared)):
            left_out.append(element)
            continue
        state = _inside(element, declared, around)
        hidden = state.is_hidden
        if hidden:
            element.text = None
            if element.tag == "a":
                links.append(element)
        for child in element:
            if hidden:
                child.tail = None
            if isinstance(child.tag, str):
                stack.append((child, state))
    for element in left_out:
        if element.getparent() is not None:
            element.drop_tree()
    for link in links:
        if not any(_has_something(element, link) for element in islice(link.iter(), _MAX_IN_LINK)):
            link.attrib.pop("href", None)


def _has_something(element: HtmlElement, link: HtmlElement) -> bool:
    return element.tag == "img" or bool(f"{element.text or ''}{element.tail or '' if element is not link else ''}".strip())


class _Rules:
    """The rules of a page's stylesheets for a tag, a class or an id; where others set a background, it is not known."""

    def __init__(self, text: str) -> None:
        self._by_name: dict[str, dict[str, str]] = {}
        self._inline: dict[str, Declarations] = {}
        for count, (selectors, body, conditional) in enumerate(_rules_in(text)):
            if count >= _MAX_RULES:
                break
            declared = _declarations(body)
            for selector in selectors.split(","):
                self._add(selector.strip(), declared, conditional)

    def _add(self, selector: str, declared: Declarations, conditional: bool) -> None:
        last = re.split(r"[\s>+~]", selector)[-1]
        simple = _SELECTOR.fullmatch(selector)
        certain = simple is not None and not conditional and not (simple[1] and simple[2])
        if not certain:
            # It holds in some places only, so it hides nothing, and what is behind a text there cannot be said.
            declared = {"background": "unknown"} if any(name.startswith("background") for name in declared) else {}
        names = re.findall(r"[.#][\w-]+", last)[-1:] or [re.split(r"[.#:\[]", last)[0].lower()]
        if declared and names[0]:
            self._by_name.setdefault(names[0], {}).update(declared)

    def of(self, element: HtmlElement) -> Declarations:
        """List the declarations for an element, the stronger rule last."""
        inline = element.get("style", "")[:_MAX_INLINE]
        own = self._inline.get(inline)
        if own is None:
            own = self._inline[inline] = _declarations(inline)
        if not self._by_name:
            return own
        names = ["*", element.tag]
        names += [f".{name}" for name in element.get("class", "").split()[:_MAX_CLASSES]]
        names.append(f"#{element.get('id', '')}")
        matching = [declarations for name in names if (declarations := self._by_name.get(name))]
        return {name: value for declarations in (*matching, own) for name, value in declarations.items()} if matching else own


def _rules_in(text: str) -> Iterator[tuple[str, str, bool]]:
    """Yield selectors and body of each rule, and whether it is inside another one, such as `@media`."""
    head, *parts = text.split("/*")
    text = head + "".join(part.partition("*/")[2] for part in parts)
    around: list[str] = []
    start = 0
    for brace in re.finditer(r"[{}]", text):
        piece, start = text[start : brace.start()], brace.end()
        if brace[0] == "{":
            around.append(piece.rpartition(";")[2].strip())
        elif around:
            selectors = around.pop()
            if selectors and not selectors.startswith("@"):
                yield selectors[:_MAX_INLINE], piece, bool(around)


def _declarations(text: str) -> Declarations:
    declared = {}
    for part in text.split(";"):
        name, separator, value = part.partition(":")
        if separator:
            declared[name.strip().lower()] = value.lower().replace("!important", "").strip()
    return declared


def _is_not_shown(declared: Declarations) -> bool:
    """Check whether an element and everything in it is hidden."""
    if declared.get("display") == "none" or declared.get("content-visibility") == "hidden":
        return True
    if any(_is_zero(declared.get(name)) for name in ("opacity", "height", "max-height")):
        return True
    if "hidden" in declared.get("overflow", "") and any(_is_zero(declared.get(name)) for name in ("width", "max-width")):
        return True
    if any(_is_far(declared.get(name)) for name in ("text-indent", "margin-left", "margin-top")):
        return True
    if declared.get("position") in ("absolute", "fixed") and any(
        _is_far(declared.get(name)) for name in ("left", "top", "right", "bottom")
    ):
        return True
    moved = declared.get("transform", "")
    if _NOTHING.search(moved) or any(_is_far(part.strip()) for match in _MOVED.finditer(moved) for part in match[1].split(",")):
        return True
    return bool(_CLIPPED.match(declared.get("clip", "")) or _CLIPPED.match(declared.get("clip-path", "")))


def _inside(element: HtmlElement, declared: Declarations, around: _Inherited) -> _Inherited:
    """Compute the properties that an element hands on to its text and to the elements in it."""
    changes: dict[str, object] = {}
    if size := declared.get("font-size"):
        relative = size.endswith(("em", "%")) and not size.endswith("rem")
        changes["tiny"] = _is_zero(size) or (around.tiny and (relative or size == "inherit"))
    if (visibility := declared.get("visibility")) and visibility != "inherit":
        changes["invisible"] = visibility in ("hidden", "collapse")
    color = declared.get("color") or element.get("color") or (element.get("text") if element.tag == "body" else None)
    if color and color != "inherit":
        changes["transparent"] = _is_transparent(color) and "background-clip" not in declared
        changes["color"] = _color_in(color)
    elif element.tag == "a" and "href" in element.attrib:
        changes["color"] = _LINK
    behind = (declared.get(name, "") for name in ("background", "background-color", "background-image"))
    for value in (element.get("bgcolor", ""), "unknown" if element.get("background") else "", *behind):
        if value and value not in ("none", "inherit", "initial") and not _is_transparent(value):
            changes["background"] = None if "(" in value.replace("rgb(", "") else _color_in(value)
    return replace(around, **changes) if changes else around  # type: ignore[arg-type]


def _is_zero(value: str | None) -> bool:
    return value is not None and bool(value) and (match := _ZERO.match(value)) is not None and "0" in match[0]


def _is_far(value: str | None) -> bool:
    """Check whether a length leads off the screen."""
    match = _LENGTH.match(value) if value else None
    return match is not None and int(match[1]) <= (-500 if match[2] in ("", "px", "pt") else -99)


def _is_transparent(color: str) -> bool:
    color = color.strip().lower()
    return color == "transparent" or bool(_ALPHA_ZERO.search(color))


def _color_in(value: str) -> Color | None:
    """Parse the color in a value of `color` or `background`; None if it is unclear."""
    value = value.strip().lower()
    if match := _HEX.search(value):
        digits = match[1]
        if len(digits) in (3, 4):
            digits = "".join(2 * digit for digit in digits)
        return (int(digits[0:2], 16), int(digits[2:4], 16), int(digits[4:6], 16)) if len(digits) in (6, 8) else None
    if match := _RGB.search(value):
        parts = re.findall(r"\d{1,3}", match[1].replace("%", ""))[:3]
        return (int(parts[0]), int(parts[1]), int(parts[2])) if len(parts) == 3 and "%" not in match[1] else None
    return next((_NAMED[word] for word in value.split() if word in _NAMED), None)
