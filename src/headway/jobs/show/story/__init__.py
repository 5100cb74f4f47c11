"""Tell what happened to one job."""
