"""What a running turn asks the person: approvals, forms and pages of servers, pauses before a model call."""
