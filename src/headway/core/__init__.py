"""The contract of every time scale: events in, a policy asked once an instant, actions out, a tape of it all."""
