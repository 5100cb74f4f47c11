"""Conservative backfilling: a reservation for each waiting job, planned as far as it can matter."""
