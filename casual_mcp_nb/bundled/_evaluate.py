"""Evaluate untrusted arithmetic expressions without `eval` and within fixed limits."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from mcp.server.mcpserver.exceptions import ToolError

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
    **{function.__name__: _counted(function) for function in (math.factorial, math.comb, math.perm)},
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
    """Evaluate an arithmetic expression.

    Args:
        expression: Numbers, `+ - * / // % **`, parentheses, names of `CONSTANTS`, calls of `FUNCTIONS`.

    Returns:
        A finite number; a whole number has at most `MAX_DIGITS` digits.

    Raises:
        ToolError: The expression is not valid, leaves the limits, or has no real result.
    """
    if len(expression) > MAX_CHARACTERS:
        raise ToolError(f"The expression has {len(expression)} characters; at most {MAX_CHARACTERS} are accepted.")
    try:
        result = _value(ast.parse(expression.strip(), mode="eval").body)
        return checked(result)
    except SyntaxError as error:
        raise ToolError(f"Not a valid expression: {error.msg}.") from error
    except ZeroDivisionError as error:
        raise ToolError("Division by zero.") from error
    except OverflowError as error:
        raise ToolError("The result is too large.") from error
    except (RecursionError, MemoryError) as error:
        raise ToolError("The expression is nested too deeply.") from error
    except (TypeError, ValueError) as error:
        raise ToolError(f"Cannot be evaluated: {error}.") from error


def checked(value: Any) -> Number:
    """Check that the value is a number within the limits.

    Raises:
        ToolError: It is not a real, finite number, or has too many digits.
    """
    if isinstance(value, complex):
        raise ToolError("The result is not a real number.")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ToolError("Only numbers are calculated with; a list is valid as the argument of a function only.")
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
            return checked(FUNCTIONS[name](*(_argument(arg) for arg in args)))
    raise ToolError(_refusal(node))


def _argument(node: ast.expr) -> Any:
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(item) for item in node.elts]
    return _value(node)


def _refusal(node: ast.expr) -> str:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitXor):
        return "^ is not supported; write ** for a power."
    return (
        f"{ast.unparse(node)[:60]!r} is not supported. Valid: numbers, + - * / // % **, parentheses, "
        f"{', '.join(CONSTANTS)} and {', '.join(sorted(FUNCTIONS))}."
    )
