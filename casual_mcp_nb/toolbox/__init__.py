"""Functions of a notebook as tools: what a model reads of them, what is filled in for them, where they run."""
