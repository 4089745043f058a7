"""Posteriors as folders: `posterior.json`, and weights in safetensors."""
