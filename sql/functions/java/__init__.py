"""What Java says about texts: patterns of times, regular expressions, URIs, zones."""
