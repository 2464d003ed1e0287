"""The offline planner: a deterministic stand-in for a model that needs no key and no network.

`planner` decides on the next step of a conversation: what the request needs (`needs`, in the `wording` of tools), which tools
match (`candidates`) and with which `arguments` from the values that it mentions (`mentions`), and what to reply (`replies`).
"""
