"""How a memory works: its tree of keys, the flows of its operations, its hooks."""
