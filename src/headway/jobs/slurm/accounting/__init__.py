"""Read what Slurm's accounting says of jobs."""
