"""One reader a public format of traces."""
