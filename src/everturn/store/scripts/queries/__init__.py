"""The queries that return rows, by subject: their arguments and their columns, named and typed.

The text of a query is in ``sql/`` under the same name. Flags are integers there, 0 or 1.
"""
