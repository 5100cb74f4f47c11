"""Parse what Slurm's commands print and its files hold."""
