"""What a cluster is in at a moment, and how events and actions change it."""
