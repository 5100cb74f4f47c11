"""Keep runs in folders: claim, store, open, export, make their pages."""
