"""Answer requests over HTTP, and the commands of the one who runs the fleet."""
