"""The HTTP edge: requests become calls of use cases, answers and refusals become bytes."""
