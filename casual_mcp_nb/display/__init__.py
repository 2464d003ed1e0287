"""Draw a view as text, Markdown or HTML. Views are built in their own rooms."""
