"""Dependencies, begin times and licences: when a job may start at all."""
