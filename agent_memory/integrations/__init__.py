"""One module per ecosystem; each imports its dependency, and nothing else of ours imports it."""
