"""Run many cells of a grid, on several processes or machines."""
