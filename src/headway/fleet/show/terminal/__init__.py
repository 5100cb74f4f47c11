"""Make tables of a fleet for a terminal."""
