"""The HTTP edge: the server, the table of endpoints, problems, and the page's files."""
