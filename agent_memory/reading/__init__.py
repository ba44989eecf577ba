"""Reads files in ranges (`reader`) and by lines (`lines`)."""
