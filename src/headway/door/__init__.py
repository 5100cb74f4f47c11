"""Let programs of this machine talk to a service that runs: its own folder, its socket, frames of messages."""
