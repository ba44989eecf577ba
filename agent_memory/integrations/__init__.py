"""One module per ecosystem; each imports its own dependency, and no other module of this package imports it."""
