"""Reads files in ranges (`reader`) and by lines (`lines`), and skips blocks in a search (`prefilter`)."""
