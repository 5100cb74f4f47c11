"""Set from what was measured how programs share a GPU."""
