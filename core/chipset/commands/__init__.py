"""One file per command group; each returns what it did as one JSON document with ``--json``."""
