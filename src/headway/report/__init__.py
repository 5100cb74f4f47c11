"""Numbers and tapes into what a person looks at."""
