"""What certifies a plugin."""


def reproduce(device: str, case: str, seed: int = 0) -> None:
    """Runs one case in this process; raises what the case raises. For debuggers and reports."""
    from chipset_conformance import execution

    execution.reproduce(device, case, seed)
