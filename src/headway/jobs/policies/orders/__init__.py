"""Orders: which waiting job comes first."""
