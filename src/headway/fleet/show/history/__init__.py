"""Tell from a tape what happened to each request and on each worker."""
