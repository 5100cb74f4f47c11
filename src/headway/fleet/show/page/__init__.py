"""Make the report page of a fleet."""
