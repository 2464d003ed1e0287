"""How a model gets the tools that a search found."""

from __future__ import annotations

from typing import Literal, get_args

Delivery = Literal["definitions", "native", "bridge"]
"""How a step got what searches found.

- `definitions`: their definitions are added to those of the request.
- `native`: the provider adds them to the conversation, behind the search that found them.
- `bridge`: the search's result has their schemas, and the model calls them through `call_tool`.
"""

DeliverySetting = Literal["auto", Delivery]
"""What a person sets; `auto` is `native` where the model is known to support it, otherwise `definitions`."""

DELIVERY_SETTINGS: tuple[DeliverySetting, ...] = ("auto", *get_args(Delivery))
