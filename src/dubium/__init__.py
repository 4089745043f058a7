"""Which pixels make a Bayesian neural network unsure, and what can be done about it."""
