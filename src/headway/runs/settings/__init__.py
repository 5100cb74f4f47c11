"""Read experiments: files, variants, flags, changes."""
