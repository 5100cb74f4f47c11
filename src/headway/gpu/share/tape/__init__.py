"""Write down what a broker saw, and check it."""
