"""The graph that autograd recorded, walked backwards with all targets in the batch."""
