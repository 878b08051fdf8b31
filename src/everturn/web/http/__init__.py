"""The HTTP edge: the table of endpoints, problem documents, the guard, and the page's files."""
