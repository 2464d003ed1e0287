"""Draw a view as text, Markdown or HTML. Nothing here knows a room: the views are made in theirs."""
