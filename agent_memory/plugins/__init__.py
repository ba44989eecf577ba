"""Shipped plugins: each one file, each only a plugin."""
