"""Limits of users, accounts and classes of jobs."""
