"""Training: supervised fine-tuning of a causal language model on one device."""
