"""Find the text of a page that its readers do not see: hidden by styles, in its background's color,
or off the screen.
"""

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
    "black": _BLACK,
    "white": _WHITE,
    "snow": (255, 250, 250),
    "ivory": (255, 255, 240),
    "ghostwhite": (248, 248, 255),
    "whitesmoke": (245, 245, 245),
    "floralwhite": (255, 250, 240),
    "red": (255, 0, 0),
    "blue": (0, 0, 255),
    "gray": (128, 128, 128),
    "grey": (128, 128, 128),
    "silver": (192, 192, 192),
    "navy": (0, 0, 128),
    "green": (0, 128, 0),
    "yellow": (255, 255, 0),
    "orange": (255, 165, 0),
    "purple": (128, 0, 128),
}
_SELECTOR = re.compile(r"([a-z][a-z0-9]*|\*)?([.#][\w-]+)?", re.IGNORECASE)
_ZERO = re.compile(r"[+-]?0*\.?0*(?![\d.])")
_LENGTH = re.compile(r"(-?\d{1,9})(?:\.\d{1,9})?\s*([a-z%]*)", re.IGNORECASE)
_HEX = re.compile(r"#([0-9a-f]{3,8})\b", re.IGNORECASE)
_RGB = re.compile(r"rgba?\(([^()]{1,80})\)", re.IGNORECASE)
_MOVED = re.compile(r"translate(?:3d|x|y)?\(([^()]{1,80})\)", re.IGNORECASE)
_NOTHING = re.compile(r"scale[xy3d]{0,2}\(\s*0*\.?0*\s*[,)]", re.IGNORECASE)
_CLIPPED = re.compile(r"rect\(\s*0(?:px)?[\s,]+0|inset\(\s*(?:50|100)%|circle\(\s*0", re.IGNORECASE)
_ALPHA_ZERO = re.compile(
    r"\b(?:rgba|hsla)\([^()]{1,60}[,/]\s*0*\.?0*%?\s*\)|^#(?:[0-9a-f]{3}0|[0-9a-f]{6}00)$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class _Inherited:
    """The properties that an element inherits from those around it."""

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
    """Remove text that a reader does not see, and elements that are not shown at all.

    With `linked_styles`, stylesheets in other files count. They can set any background, which is
    then unknown unless the page itself sets it.
    """
    rules = _Rules("\n".join(style.text or "" for style in tree.iter("style"))[:_MAX_STYLES])
    page = _Inherited()
    if linked_styles and _links_a_stylesheet(tree):
        page = _Inherited(background=None)
    left_out, links = [], []
    stack = [(tree, page)]
    while stack:
        element, around = stack.pop()
        declared = rules.of(element)
        if "hidden" in element.attrib or (declared and _is_not_shown(declared)):
            left_out.append(element)
            continue
        state = _inside(element, declared, around)
        if state.is_hidden:
            # What follows a child, its tail, is the element's own text as well.
            element.text = None
            for child in element:
                child.tail = None
            if element.tag == "a":
                links.append(element)
        # The tag of a comment is a function.
        stack += [(child, state) for child in element if isinstance(child.tag, str)]
    for element in left_out:
        if element.getparent() is not None:
            element.drop_tree()
    for link in links:
        if _is_empty(link):
            link.attrib.pop("href", None)


def _links_a_stylesheet(tree: HtmlElement) -> bool:
    return any("stylesheet" in link.get("rel", "").lower() for link in tree.iter("link"))


def _is_empty(link: HtmlElement) -> bool:
    """Check whether nothing of a link can be seen: it has no text left, and no picture."""
    for element in islice(link.iter(), _MAX_IN_LINK):
        text = element.text or ""
        if element is not link:
            text += element.tail or ""
        if element.tag == "img" or text.strip():
            return False
    return True


class _Rules:
    """A page's stylesheet rules for tags, classes and ids.

    A background that a rule sets in some places only is unknown.
    """

    def __init__(self, text: str) -> None:
        self._by_name: dict[str, dict[str, str]] = {}
        self._inline: dict[str, Declarations] = {}
        for selectors, body, conditional in islice(_rules_in(text), _MAX_RULES):
            declared = _declarations(body)
            for selector in selectors.split(","):
                self._add(selector.strip(), declared, conditional)

    def _add(self, selector: str, declared: Declarations, conditional: bool) -> None:
        last = re.split(r"[\s>+~]", selector)[-1]
        simple = _SELECTOR.fullmatch(selector)
        certain = simple is not None and not conditional and not (simple[1] and simple[2])
        if not certain:
            # It holds in some places only, so it hides nothing, and the background there is
            # unknown.
            if not any(name.startswith("background") for name in declared):
                return
            declared = {"background": "unknown"}
        if classes_and_ids := re.findall(r"[.#][\w-]+", last):
            name = classes_and_ids[-1]
        else:
            name = re.split(r"[.#:\[]", last)[0].lower()
        if declared and name:
            self._by_name.setdefault(name, {}).update(declared)

    def of(self, element: HtmlElement) -> Declarations:
        """Collect the declarations for an element; a stronger rule replaces a weaker one's."""
        inline = element.get("style", "")[:_MAX_INLINE]
        own = self._inline.get(inline)
        if own is None:
            own = self._inline[inline] = _declarations(inline)
        if not self._by_name:
            return own
        names = ["*", element.tag]
        names += [f".{name}" for name in element.get("class", "").split()[:_MAX_CLASSES]]
        names.append(f"#{element.get('id', '')}")
        declared: dict[str, str] = {}
        for name in names:
            declared.update(self._by_name.get(name, {}))
        declared.update(own)
        return declared


def _rules_in(text: str) -> Iterator[tuple[str, str, bool]]:
    """Yield each rule's selectors and body, and whether it is inside another one, such as
    `@media`.
    """
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
    if declared.get("display") == "none" or declared.get("content-visibility") == "hidden":
        return True
    zero = ["opacity", "height", "max-height"]
    if "hidden" in declared.get("overflow", ""):
        zero += ["width", "max-width"]
    if any(_is_zero(declared.get(name, "")) for name in zero):
        return True
    far = ["text-indent", "margin-left", "margin-top"]
    if declared.get("position") in ("absolute", "fixed"):
        far += ["left", "top", "right", "bottom"]
    if any(_is_far(declared.get(name, "")) for name in far):
        return True
    transform = declared.get("transform", "")
    if _NOTHING.search(transform):
        return True
    for move in _MOVED.finditer(transform):
        if any(_is_far(distance.strip()) for distance in move[1].split(",")):
            return True
    return any(_CLIPPED.match(declared.get(name, "")) for name in ("clip", "clip-path"))


def _inside(element: HtmlElement, declared: Declarations, around: _Inherited) -> _Inherited:
    """Compute the properties that an element hands on to its text and to the elements in it."""
    changes: dict[str, object] = {}
    if size := declared.get("font-size"):
        relative = size.endswith(("em", "%")) and not size.endswith("rem")
        changes["tiny"] = _is_zero(size) or (around.tiny and (relative or size == "inherit"))
    if (visibility := declared.get("visibility")) and visibility != "inherit":
        changes["invisible"] = visibility in ("hidden", "collapse")
    color = declared.get("color") or element.get("color")
    if not color and element.tag == "body":
        color = element.get("text")
    if color and color != "inherit":
        changes["transparent"] = _is_transparent(color) and "background-clip" not in declared
        changes["color"] = _color_in(color)
    elif element.tag == "a" and "href" in element.attrib:
        changes["color"] = _LINK
    for value in _backgrounds(element, declared):
        if value in ("", "none", "inherit", "initial") or _is_transparent(value):
            continue
        changes["background"] = None
        # Another function than rgb() makes a gradient, or loads a picture.
        if "(" not in value.replace("rgb(", ""):
            changes["background"] = _color_in(value)
    if not changes:
        return around
    return replace(around, **changes)  # type: ignore[arg-type]


def _backgrounds(element: HtmlElement, declared: Declarations) -> Iterator[str]:
    yield element.get("bgcolor", "")
    if element.get("background"):
        # A picture.
        yield "unknown"
    for name in ("background", "background-color", "background-image"):
        yield declared.get(name, "")


def _is_zero(value: str) -> bool:
    match = _ZERO.match(value)
    return match is not None and "0" in match[0]


def _is_far(length: str) -> bool:
    """Check whether a length leads off the screen."""
    match = _LENGTH.match(length)
    if match is None:
        return False
    number, unit = int(match[1]), match[2]
    if unit in ("", "px", "pt"):
        return number <= -500
    return number <= -99


def _is_transparent(color: str) -> bool:
    color = color.strip().lower()
    return color == "transparent" or bool(_ALPHA_ZERO.search(color))


def _color_in(value: str) -> Color | None:
    """Parse the color in a `color` or `background` value, or return None if it is unclear."""
    value = value.strip().lower()
    if match := _HEX.search(value):
        digits = match[1]
        if len(digits) in (3, 4):
            digits = "".join(2 * digit for digit in digits)
        if len(digits) not in (6, 8):
            return None
        return int(digits[0:2], 16), int(digits[2:4], 16), int(digits[4:6], 16)
    if match := _RGB.search(value):
        parts = re.findall(r"\d{1,3}", match[1].replace("%", ""))[:3]
        if len(parts) != 3 or "%" in match[1]:
            return None
        return int(parts[0]), int(parts[1]), int(parts[2])
    for word in value.split():
        if word in _NAMED:
            return _NAMED[word]
    return None
