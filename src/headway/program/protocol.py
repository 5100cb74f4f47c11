"""What a queue and a program agree on: an exit status, and the environment variables that the queue sets."""

SAVED = 85
"""Exit status of a program that wrote a checkpoint and wants to be started again."""
SAVED_FILE = "HEADWAY_SAVED"
"""Variable of a file that is made with it: launchers of several processes end with a status of their own."""
PROGRESS = "HEADWAY_PROGRESS"
"""Variable of the file to which a program writes which share of its work is done, 0 to 1."""
CHECKPOINTS = "HEADWAY_CHECKPOINTS"
"""Variable of the folder of checkpoints, where a program does not name one."""
