"""The shell: reads statements, runs them through `server.client`, and prints what they answer."""
