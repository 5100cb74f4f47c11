"""ESG: a deadline divided by dominators, and a search for the configuration of each stage."""
