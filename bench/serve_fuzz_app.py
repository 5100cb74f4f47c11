"""Application of ``bench.serve_fuzz``: tasks that take any value and give it back, alone and in a graph that parts."""

import headway as hw


@hw.task(max_batch=4, example=lambda n: [{"any": [1, 2.5, "text", None, True]}] * n)
def echo(values):
    """Give back what came."""
    return values


@hw.task(max_batch=4)
def left(values):
    """Give back what came, in a list."""
    return [[value] for value in values]


@hw.task(max_batch=4)
def right(values):
    """Say what kind of value came."""
    return [type(value).__name__ for value in values]


one = hw.graph("one", echo)
two = hw.graph("two", echo >> {left, right})
