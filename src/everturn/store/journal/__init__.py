"""The journal: events made durable, read, followed, and recovered after a crash."""
