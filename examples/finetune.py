"""Teach a model a few answers, on any chip:  python examples/finetune.py [DEVICE] [MODEL]"""

import json
import sys
import tempfile
from pathlib import Path

import chipset
from chipset.fetch.models import resolve_model
from chipset_layers.training.sft import SftConfig, train_sft

ROWS = [
    {"instruction": f"What is {a} times {b}?", "input": "", "output": f"It is {a * b}."}
    for a in range(2, 6)
    for b in range(2, 6)
]


def main(device: str = "cpu", model: str = "smollm2-135m") -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "tables.json"
        data.write_text(json.dumps(ROWS))
        config = SftConfig(
            model=resolve_model(model),
            data=data,
            output=Path(folder) / "out",
            device=chipset.select(device).torch,
            steps=8,
            max_length=128,
            learning_rate=1e-4,
        )
        result = train_sft(config, lambda r: print(f"step {r.step}: loss {r.loss:.3f}"))
        print(f"{result.first_loss:.3f} → {result.last_loss:.3f}, files: "
              f"{sorted(path.name for path in config.output.iterdir())}")  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
