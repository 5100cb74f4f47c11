"""What a tape of a fleet comes to, in numbers."""
