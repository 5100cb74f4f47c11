"""Answer questions about jobs: why one waits, what would change, which policy to choose."""
