"""Answer questions about a fleet: why a request was slow, how many workers to have, what would change."""
