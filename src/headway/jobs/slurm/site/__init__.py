"""Read a Slurm site's rules: accounts, limits, preemption, policy, and changes of them."""
