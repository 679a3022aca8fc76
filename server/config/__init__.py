"""The operator's settings: flags, the configuration file, properties, and their reference."""
