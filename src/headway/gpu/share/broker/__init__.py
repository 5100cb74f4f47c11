"""The process that divides a GPU among programs."""
