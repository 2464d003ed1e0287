"""The offline planner: rules that read a request and the tools on offer, and decide on the next calls. Pure."""
