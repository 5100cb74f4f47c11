"""Files about inference fleets: experiment and scenario tables, profiles."""
