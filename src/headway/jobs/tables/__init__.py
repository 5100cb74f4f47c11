"""Parse files about training clusters and jobs: experiment tables, clusters, profiles."""
