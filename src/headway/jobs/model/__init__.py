"""What a cluster and its jobs are, and the events and actions that change them."""
