"""A real training run through torch, under the checked layer, recorded and replayed."""

from __future__ import annotations

import json
from pathlib import Path

TRAINING = """
import chipset
device = chipset.select("cpu").torch
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Embedding(11, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 32), torch.nn.SiLU(),
    torch.nn.Linear(32, 11)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
ids = (torch.arange(40) * 7 % 11).to(device)
losses = []
for _ in range(5):
    loss = torch.nn.functional.cross_entropy(model(ids), (ids + 1) % 11)
    loss.backward(); optimizer.step(); optimizer.zero_grad()
    losses.append(loss.item())
assert losses[-1] < losses[0]
print(losses)
"""


def test_training_breaks_no_rule_and_replays_to_the_bit(run_python, tmp_path: Path):
    plain = run_python(TRAINING)
    assert plain.returncode == 0, plain.stderr
    file = tmp_path / "run.rec"
    watched = run_python(TRAINING, env={"CHIPSET_CHECK": "1", "CHIPSET_RECORD": str(file)})
    assert watched.returncode == 0, watched.stderr
    assert "check:" not in watched.stderr
    assert watched.stdout == plain.stdout

    done = run_python("-m", "chipset.replay", str(file), "--device", "cpu", "--json")
    outcome = json.loads(done.stdout)
    assert done.returncode == 0, outcome
    assert outcome["compared"] >= 5
    assert outcome["skipped"] == {}


def test_training_is_the_same_on_composed_functions(run_python):
    """Within rounding: the compositions are another order of the same sums."""
    native = json.loads(run_python(TRAINING).stdout)
    composed = json.loads(run_python(TRAINING, env={"CHIPSET_COMPOSE": "1"}).stdout)
    assert max(abs(a - b) for a, b in zip(native, composed, strict=True)) < 1e-5
