"""Reading files in ranges, by lines, and with a filter before a search."""
