"""MCP servers: started on demand, and trusted by what they say about their tools."""
