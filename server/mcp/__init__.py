"""MCP, the Model Context Protocol, at /mcp: programs with language models ask what runs, and read rows."""
