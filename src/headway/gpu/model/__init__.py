"""What a GPU and its programs are: kernels, launches, and the events and actions that change them."""
