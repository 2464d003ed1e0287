"""The offline planner: a deterministic stand-in for a model that needs no key and no network.

A session uses `client`. `planner` decides on the next step of a `conversation`: what it needs (`needs`, in the `wording`
of tools), which tools match (`candidates`) and with which `arguments` from the values that it mentions (`mentions`, `places`,
`expressions`), and what to reply (`replies`).
"""
