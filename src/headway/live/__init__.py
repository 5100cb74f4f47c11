"""What happens outside the simulator: here, cells of a sweep on the machines of a Ray cluster."""
