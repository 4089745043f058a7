"""How the method behind `method="auto"` was chosen, and on which images it was judged."""
