"""Tools that run shell commands and Python code: the process, its output, its end."""
