"""Migrations: moving running jobs to make room."""
