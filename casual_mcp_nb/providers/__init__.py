"""Model providers over casual-llm: the factory, a model bound to its client, the offline planner
and the scripted model.

Importing this package does not import any SDK.
"""
