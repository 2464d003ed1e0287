"""JSON Schema: reading schemas, limiting them for a model, and quick validation."""

from casual_mcp_nb.types.schema.fit import fits_plainly
from casual_mcp_nb.types.schema.limits import limited_parameters, unusable_part
from casual_mcp_nb.types.schema.reader import SchemaReader

__all__ = ["SchemaReader", "fits_plainly", "limited_parameters", "unusable_part"]
