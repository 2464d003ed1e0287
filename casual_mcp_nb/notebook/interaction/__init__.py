"""Questions of a running turn to the person: approvals, forms and pages of servers, pauses before a model call."""
