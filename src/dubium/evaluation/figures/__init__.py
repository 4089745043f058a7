"""What the protocols draw."""
