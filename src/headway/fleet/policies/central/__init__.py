"""What policies with one queue for the whole fleet share."""
