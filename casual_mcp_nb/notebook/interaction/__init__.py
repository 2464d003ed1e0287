"""What a running turn asks the person: approvals, forms and links of servers, pauses before a model call."""
