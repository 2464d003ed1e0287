"""JSON Schema, read in one place: what a schema says, how much of it a model is given, whether a value plainly fits it."""

from casual_mcp_nb.types.schema.fit import fits_plainly
from casual_mcp_nb.types.schema.limits import limited_parameters, unusable_part
from casual_mcp_nb.types.schema.reader import SchemaReader

__all__ = ["SchemaReader", "fits_plainly", "limited_parameters", "unusable_part"]
