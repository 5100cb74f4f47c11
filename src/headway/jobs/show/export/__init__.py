"""Export tables and timelines of jobs."""
