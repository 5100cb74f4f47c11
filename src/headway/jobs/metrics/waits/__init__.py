"""Find what jobs waited for, interval by interval."""
