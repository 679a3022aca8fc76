"""What the shell prints, as lines of text."""
