"""MCP, the Model Context Protocol, at /mcp: programs with language models ask about queries, and read rows."""
