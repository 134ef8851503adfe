"""A picture of the loss."""

from __future__ import annotations

from pathlib import Path


def draw_loss_curve(steps: list[int], losses: list[float], path: Path) -> None:
    """Save a PNG of the loss of each step and its running mean (half-life of 5 steps)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    smooth: list[float] = []
    for loss in losses:
        smooth.append(loss if not smooth else smooth[-1] + (loss - smooth[-1]) * 0.13)
    figure, axes = pyplot.subplots(figsize=(7, 4), dpi=120)
    axes.plot(steps, losses, linewidth=0.8, alpha=0.45, label="each step")
    axes.plot(steps, smooth, linewidth=2.0, label="running mean")
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats per assistant token)")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
