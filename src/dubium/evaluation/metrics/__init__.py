"""Pure functions of tensors and arrays: what the protocols measure. No files, no drawing, no progress."""
