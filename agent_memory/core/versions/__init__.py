"""Earlier versions of files: kept before a change replaces them, listed, read, restored, erased and pruned."""
