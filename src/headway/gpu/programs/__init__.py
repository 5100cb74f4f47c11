"""Programs of kernels: traces, profiles, recipes, those that ship, and where they are kept."""
