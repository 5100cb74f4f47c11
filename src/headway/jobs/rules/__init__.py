"""What stands between a job and its start, a folder or a file each."""
