"""A user's networks as the methods want them: their logits, checked on the first pass, and handed back as they were."""
