"""How CPUs, memory and storage bandwidth are divided, one file each."""
