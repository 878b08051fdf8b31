"""Scripts: how transactions are written, the queries they run, and the steps they share."""
