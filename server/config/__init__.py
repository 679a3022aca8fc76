"""What an operator sets: flags, the configuration file, properties, and the pages that list them."""
