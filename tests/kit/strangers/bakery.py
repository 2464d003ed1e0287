"""A village bakery."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal

from fastmcp import FastMCP
from kit.strangers.question import answered, asked
from pydantic import Field

READS = {"readOnlyHint": True}

server: FastMCP[Any] = FastMCP("bakery")


@server.tool(annotations=READS)
def search_recipes(query: str, vegan_only: bool = False, limit: int = 10) -> str:
    """Search the recipes of breads, rolls and cakes."""
    return f"recipes {query} {vegan_only} {limit}"


@server.tool(annotations=READS)
def get_recipe(title: str) -> str:
    """Get one recipe with its ingredients and steps."""
    return f"recipe {title}"


@server.tool(annotations=READS)
def allergens(product: Annotated[str, Field(description="The bread or cake.")]) -> str:
    """List the allergens in a product."""
    return f"allergens {product}"


@server.tool(annotations=READS)
def price_list(category: Literal["bread", "rolls", "cake", "coffee"] | None = None) -> str:
    """Show what everything in the shop costs."""
    return f"prices {category}"


@server.tool(annotations=READS)
def orders_for(day: date, status: Literal["open", "baked", "collected"] | None = None) -> str:
    """List the orders that customers collect on a day."""
    return f"orders {day} {status}"


@server.tool(annotations=READS)
def dough_temperature(flour_c: float, room_c: float, target_c: float = 26.0) -> str:
    """Work out how warm the water for a dough must be."""
    return f"water {flour_c} {room_c} {target_c}"


@server.tool(annotations=READS)
def oven_status(oven: Annotated[int, Field(ge=1, le=4)]) -> str:
    """Report the temperature of an oven and what it bakes."""
    return f"oven {oven}"


@server.tool(annotations={"readOnlyHint": False})
def place_order(customer: str, product: str, count: int, day: date) -> str:
    """Place an order for a customer."""
    return f"ordered {customer} {product} {count} {day}"


@server.tool(annotations={"destructiveHint": True})
def cancel_order(order_id: int) -> str:
    """Cancel an order."""
    return f"cancelled {order_id}"


QUESTIONS = [
    answered("Search the recipes for rye", "search_recipes", query="rye"),
    answered(
        "Search for vegan recipes with pumpkin",
        "search_recipes",
        query="pumpkin",
        vegan_only=True,
    ),
    answered("Show me the recipe 'Black Forest Cake'", "get_recipe", title="Black Forest Cake"),
    answered("Which allergens are in the walnut bread?", "allergens", product="walnut bread"),
    answered("What does coffee cost?", "price_list", category="coffee"),
    answered(
        "List the open orders for 2026-12-24",
        "orders_for",
        day="2026-12-24",
        status="open",
    ),
    answered("What is the temperature of oven 3?", "oven_status", oven=3),
    answered(("What is the status of the oven?", "2"), "oven_status", oven=2),
    asked("Place an order for Mrs Brown"),
    asked("Who cancelled the order of Mr Smith?"),
]
