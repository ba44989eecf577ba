"""The internals of a memory: its tree of keys, the flows of its operations, its hooks."""
