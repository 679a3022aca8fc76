"""What the sources that follow the changes of a database share, whichever database it is."""
