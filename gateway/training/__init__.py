"""Training of what Lockgate ships: needs torch, which serving does not."""
