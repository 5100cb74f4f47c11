"""Run the processes of workers, and talk to them."""
