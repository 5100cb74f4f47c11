"""Read traces of requests, and draw requests."""
