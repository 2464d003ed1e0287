"""The offline planner: a deterministic stand-in for a model that needs no key and no network.

A session uses `client`. `planner` decides on the next step from the `conversation`: what the request needs
(`needs`, `mentions`, `expressions`, `places`), which tools match (`candidates`, with `arguments` by their `parameters`), how to
find those that are not loaded (`finding`), and what to reply (`replies`).
"""
