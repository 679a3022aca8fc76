"""The catalog as this server has it: commands, their topic, and what follows from each of them."""
