"""Files about training clusters and jobs: experiment tables, clusters, profiles."""
