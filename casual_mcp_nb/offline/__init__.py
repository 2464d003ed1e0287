"""The offline planner, a deterministic stand-in for a model: `needs` reads requests, `arguments`
fills, `planner` decides.
"""
