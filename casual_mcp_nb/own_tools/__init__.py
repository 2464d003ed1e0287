"""Functions of a notebook as tools: the definitions a model reads, the injected values, the thread they run on."""
