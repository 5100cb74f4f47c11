"""Make the report page of jobs."""
