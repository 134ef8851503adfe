"""Curves of what the cases measured, each against the device's own roofline, as inline SVG."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from chipset_conformance.results import Measurement, Record


def curves(records: Iterable[Record]) -> dict[str, list[Measurement]]:
    """Figures with a size, by name, in the order of the sizes."""
    found: dict[str, list[Measurement]] = {}
    for record in records:
        for measurement in record.measurements:
            if measurement.x is not None:
                found.setdefault(measurement.name, []).append(measurement)
    return {name: sorted(points, key=lambda m: m.x or 0) for name, points in found.items()}


def svg(name: str, points: Sequence[Measurement]) -> str:
    """One curve and its limit. The text is drawn as text, so that the page can be searched."""
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "chipset"}):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5.6, 3.2), layout="constrained")
        axes = figure.subplots()
        x = [point.x or 0 for point in points]
        axes.plot(x, [point.value for point in points], marker="o", color="#2f6fde")
        if all(point.limit is not None for point in points):
            limits = [point.limit or 0 for point in points]
            label = points[0].limit_is or "limit"
            axes.plot(x, limits, linestyle="--", color="#888888", label=label)
            axes.legend(frameon=False, fontsize=8)
        if len(x) > 1 and min(x) > 0 and max(x) / min(x) > 20:
            axes.set_xscale("log", base=2)
        axes.set_xlabel(points[0].x_label)
        axes.set_ylabel(points[0].unit)
        axes.set_ylim(bottom=0)
        axes.set_title(name, fontsize=10)
        axes.grid(alpha=0.3)
        buffer = io.StringIO()
        # No date: the same certificate gives the same page.
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]
