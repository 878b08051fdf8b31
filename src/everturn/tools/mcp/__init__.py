"""MCP servers, started on demand. The user decides which of their tools to trust."""
