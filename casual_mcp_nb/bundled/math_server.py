"""The `math` server: arithmetic, expressions, statistics, equations, number theory."""

from __future__ import annotations

import ast
import math
import operator
import random
import statistics as stdlib_statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field, WithJsonSchema

from casual_mcp_nb.bundled._server import FunctionServer, reads

Number = int | float

MAX_CHARACTERS = 500
MAX_DIGITS = 1000
_MAX_BITS = int(MAX_DIGITS / math.log10(2))
_MAX_COUNT = 5000

_OF_MATH = """
sqrt cbrt exp log log10 log2 sin cos tan asin acos atan atan2 sinh cosh tanh degrees
radians floor ceil trunc hypot isqrt gcd lcm
"""
CONSTANTS: Mapping[str, float] = {"pi": math.pi, "e": math.e, "tau": math.tau}


def _power(base: Number, exponent: Number) -> Any:
    whole = isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1
    if whole and int(base).bit_length() * abs(exponent) > 2 * _MAX_BITS:
        raise ToolError(f"The power is too large: results are limited to {MAX_DIGITS} digits.")
    return base**exponent


def _counted(function: Callable[..., int]) -> Callable[..., int]:
    """Limit the numbers that a function counts with: its result grows far faster than they do."""

    def limited(*counts: Number) -> int:
        if any(abs(count) > _MAX_COUNT for count in counts):
            raise ToolError(f"{function.__name__} takes whole numbers up to {_MAX_COUNT}.")
        return function(*counts)

    return limited


def _round(number: Number, digits: int = 0) -> Number:
    if abs(digits) > MAX_DIGITS:
        raise ToolError(f"round takes at most {MAX_DIGITS} digits.")
    return round(number, digits) if digits else round(number)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(math, name) for name in _OF_MATH.split()},
    "factorial": _counted(math.factorial),
    "comb": _counted(math.comb),
    "perm": _counted(math.perm),
    "abs": abs,
    "min": min,
    "max": max,
    "sum": sum,
    "round": _round,
    "pow": _power,
}

_OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


def evaluate(expression: str) -> Number:
    """Evaluate an arithmetic expression with numbers, `+ - * / // % **`, parentheses, `CONSTANTS`
    and `FUNCTIONS`.

    `^` is a power too, as on calculators. The result is finite; a whole number has at most
    `MAX_DIGITS` digits.
    """
    if len(expression) > MAX_CHARACTERS:
        raise ToolError(
            f"The expression has {len(expression)} characters, and at most {MAX_CHARACTERS} are"
            " accepted."
        )
    try:
        with _calculating():
            return checked(_value(_parsed(expression.strip().replace("^", "**"))))
    except (RecursionError, MemoryError) as error:
        raise ToolError("The expression is nested too deeply.") from error
    except (TypeError, ValueError) as error:
        raise ToolError(f"Cannot be evaluated: {error}.") from error


def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ToolError(f"Not a valid expression: {error.msg}.") from error
    except ValueError as error:
        # Of a null byte, until Python 3.11.3.
        raise ToolError(f"Not a valid expression: {error}.") from error


def checked(value: Any) -> Number:
    """Check that the value is a number within the limits.

    Raises:
        ToolError: It is not a real, finite number, or has too many digits.
    """
    if isinstance(value, complex):
        raise ToolError("The result is not a real number.")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ToolError(
            "An expression consists of numbers. A list is valid only as the argument of a function."
        )
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise ToolError(f"The number is too large: at most {MAX_DIGITS} digits are calculated.")
    if isinstance(value, float) and not math.isfinite(value):
        raise ToolError("The result is too large or undefined.")
    return value


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=int() | float() as number):
            return checked(number)
        case ast.Name(id=name) if name in CONSTANTS:
            return CONSTANTS[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return checked(_OPERATORS[type(op)](_value(left), _value(right)))
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
            return checked(_OPERATORS[type(op)](_value(operand)))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            return checked(FUNCTIONS[name](*map(_argument, args)))
    raise ToolError(_refusal(node))


def _argument(node: ast.expr) -> Any:
    if isinstance(node, ast.List | ast.Tuple):
        return list(map(_value, node.elts))
    return _value(node)


def _refusal(node: ast.expr) -> str:
    return (
        f"{ast.unparse(node)[:60]!r} is not supported. Valid: numbers, + - * / // % **,"
        f" parentheses, {', '.join(CONSTANTS)} and {', '.join(sorted(FUNCTIONS))}."
    )


# The union keeps whole numbers exact; the schema stays the one word that models know.
JsonNumber = Annotated[
    int | Annotated[float, Field(allow_inf_nan=False)], WithJsonSchema({"type": "number"})
]
JsonNumbers = Annotated[
    list[JsonNumber],
    Field(min_length=1, max_length=10_000),
    WithJsonSchema({"type": "array", "items": {"type": "number"}, "minItems": 1}),
]
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_MAX_FACTORED = 10**12


def build() -> FunctionServer:
    """Build the server."""
    tools = reads(
        evaluate_expression,
        add,
        subtract,
        multiply,
        divide,
        power,
        percentage_change,
        describe_numbers,
        solve_quadratic,
        prime_factors,
        gcd_and_lcm,
        convert_base,
        random_numbers,
    )
    return FunctionServer("math", "Exact and fast arithmetic, statistics and number theory.", tools)


def evaluate_expression(
    expression: Annotated[
        str, Field(description="For example '2 * (3 + 4) ** 2', 'sqrt(2) / pi' or 'max([1, 2, 3])'")
    ],
) -> JsonNumber:
    """Calculate how much an arithmetic expression is, with operators, parentheses, constants and
    functions.

    Knows + - * / // % **, pi, e, sqrt, log, sin, factorial, round, min, max, sum and others.
    """
    return evaluate(expression)


def add(
    a: Annotated[JsonNumber, Field(description="The first number")],
    b: Annotated[JsonNumber, Field(description="The second number")],
) -> JsonNumber:
    """Add two numbers and return their sum."""
    with _calculating():
        return checked(a + b)


def subtract(
    a: Annotated[JsonNumber, Field(description="The number to subtract from")],
    b: Annotated[JsonNumber, Field(description="The number that is subtracted")],
) -> JsonNumber:
    """Subtract one number from another and return the difference a - b."""
    with _calculating():
        return checked(a - b)


def multiply(
    a: Annotated[JsonNumber, Field(description="The first factor")],
    b: Annotated[JsonNumber, Field(description="The second factor")],
) -> JsonNumber:
    """Multiply two numbers and return their product."""
    with _calculating():
        return checked(a * b)


def divide(
    a: Annotated[JsonNumber, Field(description="The dividend")],
    b: Annotated[JsonNumber, Field(description="The divisor, not 0")],
) -> dict[str, Any]:
    """Divide one number by another.

    Returns the quotient a / b, the whole quotient and the remainder.
    """
    with _calculating():
        return {
            "quotient": checked(a / b),
            "whole": checked(a // b),
            "remainder": checked(a % b),
        }


def power(
    base: Annotated[JsonNumber, Field(description="The base")],
    exponent: Annotated[JsonNumber, Field(description="The exponent; 0.5 is the square root")],
) -> JsonNumber:
    """Raise a number to a power; a fraction as the exponent gives a root."""
    return evaluate(f"({base!r}) ** ({exponent!r})")


def percentage_change(
    old: Annotated[JsonNumber, Field(description="The value before, not 0")],
    new: Annotated[JsonNumber, Field(description="The value after")],
) -> dict[str, Any]:
    """Compare two values in percent.

    Returns the change from old to new and what percentage new is of old.
    """
    with _calculating():
        return {
            "change_percent": checked((new - old) / abs(old) * 100),
            "percent_of_old": checked(new / old * 100),
        }


def describe_numbers(
    numbers: Annotated[JsonNumbers, Field(description="The numbers, such as [3, 5, 8]")],
) -> dict[str, Any]:
    """Calculate statistics of a list of numbers.

    Returns count, sum, mean, median, mode, minimum, maximum, sample standard deviation and
    variance.
    """
    with _calculating():
        described = {
            "count": len(numbers),
            "sum": checked(sum(numbers)),
            "mean": checked(stdlib_statistics.mean(numbers)),
            "median": checked(stdlib_statistics.median(numbers)),
            "mode": stdlib_statistics.mode(numbers),
            "minimum": min(numbers),
            "maximum": max(numbers),
            "standard_deviation": None,
            "variance": None,
        }
        if len(numbers) > 1:
            described["standard_deviation"] = checked(stdlib_statistics.stdev(numbers))
            described["variance"] = checked(stdlib_statistics.variance(numbers))
    return described


def solve_quadratic(
    a: Annotated[JsonNumber, Field(description="The factor of x squared, not 0")],
    b: Annotated[JsonNumber, Field(description="The factor of x")],
    c: Annotated[JsonNumber, Field(description="The constant")],
) -> dict[str, Any]:
    """Solve the quadratic equation a*x^2 + b*x + c = 0. Returns its real or complex roots."""
    if a == 0:
        raise ToolError("The equation is not quadratic: a must not be 0.")
    with _calculating():
        discriminant = checked(b * b - 4 * a * c)
        if discriminant >= 0:
            kind, roots = "real", _real_roots(a, b, c, discriminant)
        else:
            kind, roots = "complex", _complex_roots(a, b, discriminant)
    return {"discriminant": discriminant, "kind": kind, "roots": roots}


def prime_factors(
    number: Annotated[
        int, Field(description="A whole number from 2 to 1,000,000,000,000", ge=2, le=_MAX_FACTORED)
    ],
) -> dict[str, Any]:
    """Factor a whole number into primes. Returns the factors and whether the number is prime."""
    factors, remaining, candidate = [], number, 2
    while candidate * candidate <= remaining:
        while remaining % candidate == 0:
            factors.append(candidate)
            remaining //= candidate
        candidate += 1 if candidate == 2 else 2
    if remaining > 1:
        factors.append(remaining)
    return {"number": number, "factors": factors, "is_prime": factors == [number]}


def gcd_and_lcm(
    numbers: Annotated[
        list[Annotated[int, Field(ge=-(10**18), le=10**18)]],
        Field(
            description="At least two whole numbers, such as [12, 18]", min_length=2, max_length=20
        ),
        WithJsonSchema(
            {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 20}
        ),
    ],
) -> dict[str, int]:
    """Find the greatest common divisor and the least common multiple of whole numbers."""
    return {"gcd": math.gcd(*numbers), "lcm": math.lcm(*numbers)}


def convert_base(
    number: Annotated[
        str,
        Field(description="The number as text, such as 'ff', '0xff' or '-1010'", max_length=1000),
    ],
    from_base: Annotated[
        int, Field(description="The base it is written in, 2 to 36", ge=2, le=36)
    ] = 10,
    to_base: Annotated[int, Field(description="The base to write it in, 2 to 36", ge=2, le=36)] = 2,
) -> dict[str, Any]:
    """Convert a whole number between number systems such as binary, octal, decimal and
    hexadecimal.
    """
    try:
        value = int(number, from_base)
    except ValueError as error:
        digits = _DIGITS[:from_base]
        raise ToolError(
            f"{number[:40]!r} is not a number in base {from_base}. Valid digits: {digits}."
        ) from error
    return {
        "input": number,
        "result": _in_base(value, to_base),
        "from_base": from_base,
        "to_base": to_base,
    }


def random_numbers(
    minimum: Annotated[int, Field(description="The smallest number possible")] = 1,
    maximum: Annotated[int, Field(description="The largest number possible")] = 100,
    count: Annotated[int, Field(description="How many numbers, 1 to 1000", ge=1, le=1000)] = 1,
    seed: Annotated[
        int,
        Field(description="The same seed gives the same numbers; -1 for different ones each time"),
    ] = -1,
) -> dict[str, list[int]]:
    """Draw random whole numbers from a range, both ends included. Not for passwords or keys."""
    if minimum > maximum:
        raise ToolError(f"minimum ({minimum}) must not be larger than maximum ({maximum}).")
    source = random.Random(None if seed == -1 else seed)
    return {"numbers": [source.randint(minimum, maximum) for _ in range(count)]}


@contextmanager
def _calculating() -> Iterator[None]:
    """Refuse a calculation that has no result."""
    try:
        yield
    except ZeroDivisionError as error:
        raise ToolError("Division by zero.") from error
    except OverflowError as error:
        raise ToolError("The result is too large.") from error


def _real_roots(a: Number, b: Number, c: Number, discriminant: Number) -> list[Any]:
    # The larger root first: the textbook formula loses digits when b*b is much larger than 4*a*c.
    numerator = checked(-(b + math.copysign(math.sqrt(discriminant), b)) / 2)
    if numerator == 0:
        return [0.0]
    return sorted({checked(numerator / a), checked(c / numerator)})


def _complex_roots(a: Number, b: Number, discriminant: Number) -> list[Any]:
    real = checked(-b / (2 * a))
    imaginary = checked(math.sqrt(-discriminant) / abs(2 * a))
    return [{"real": real, "imaginary": imaginary}, {"real": real, "imaginary": -imaginary}]


def _in_base(value: int, base: int) -> str:
    if value == 0:
        return "0"
    digits, remaining = [], abs(value)
    while remaining:
        remaining, digit = divmod(remaining, base)
        digits.append(_DIGITS[digit])
    return "-" * (value < 0) + "".join(reversed(digits))
