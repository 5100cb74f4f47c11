"""The contract of all time scales: events come in, a policy decides once an instant, actions go out, a tape records."""
