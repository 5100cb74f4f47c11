"""Read descriptions of clusters from other systems."""
