"""What a fleet is: graphs, requests, workers, memory, and the events and actions that change them."""
