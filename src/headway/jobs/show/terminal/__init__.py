"""Make tables of jobs for a terminal."""
