"""Models and data sets by name: download, verify, convert, cache. Imports no torch."""
