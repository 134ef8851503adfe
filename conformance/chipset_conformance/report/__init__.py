"""Pages made of certificates: one chip's report, many chips side by side, what changed."""
