"""Several prompts through one engine, on any chip:  python examples/generate.py [DEVICE] [MODEL]"""

import sys

import chipset
from chipset.fetch.models import resolve_model
from chipset_layers.inference.engine import Engine, EngineConfig
from chipset_layers.inference.sequence import SamplingParams


def main(device: str = "cpu", model: str = "smollm2-135m") -> None:
    chip = chipset.select(device)
    engine = Engine(EngineConfig(resolve_model(model), chip.torch, cache_tokens=1024))
    questions = ["What is the capital of France?", "Name three colours.", "What is 2 + 2?"]
    prompts = [engine.encode_chat([{"role": "user", "content": q}]) for q in questions]
    sequences = engine.generate(prompts, SamplingParams(max_new_tokens=24))
    for question, sequence in zip(questions, sequences, strict=True):
        print(f"{question}\n  {engine.text_of(sequence)}")
    print(f"{engine.timing.to_dict()['decode_tokens_per_second']} tok/s, "
          f"host fallbacks: {chipset.fallbacks()}")  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
