"""What certifies a plugin."""
