"""Between the notebook and the engine: one thread, one loop, one façade."""
