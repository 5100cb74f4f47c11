"""Talk to a Slurm that runs: its commands, and what they print as typed rows."""
