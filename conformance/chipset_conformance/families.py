"""Tiny models of 15 architectures, unmodified ``transformers`` classes with random weights."""

from __future__ import annotations

from typing import Any

import torch

SMALL: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}

# Family: name of the config class, what it needs beside SMALL.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {}),
    "mistral": ("MistralConfig", {"sliding_window": 8}),
    "gemma3": ("Gemma3TextConfig", {"sliding_window": 8, "query_pre_attn_scalar": 8}),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen3_moe": ("Qwen3MoeConfig", {"num_experts": 4, **EXPERTS}),
    "phi3": ("Phi3Config", {}),
    "gpt2": ("GPT2Config", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64,
                            "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}),
    "gpt_neox": ("GPTNeoXConfig", {}),
    "bloom": ("BloomConfig", {"n_layer": 2, "n_head": 4}),
    "deepseek_v3": ("DeepseekV3Config", {
        "n_routed_experts": 4, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1,
        "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
        "v_head_dim": 8, "num_key_value_heads": 4, **EXPERTS}),
    "mamba": ("MambaConfig", {"state_size": 4, "conv_kernel": 4, "time_step_rank": 4}),
    "glm4": ("Glm4Config", {}),
    "olmo2": ("Olmo2Config", {}),
}  # fmt: skip


def model_of(family: str) -> Any:
    """The family's model, the same weights at every call, on the host, in evaluation mode."""
    import transformers

    name, extra = FAMILIES[family]
    torch.manual_seed(0)
    config = getattr(transformers, name)(**{**SMALL, **extra})
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def prompt() -> torch.Tensor:
    """Token ids [2, 16] on the host."""
    return torch.randint(3, 128, (2, 16), generator=torch.Generator().manual_seed(1))


def train(model: Any, ids: torch.Tensor, steps: int = 3, autocast: bool = False) -> list[float]:
    """The loss of each AdamW step; with ``autocast`` in bfloat16 where autocast says so."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    losses = []
    for _ in range(steps):
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=autocast):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.item()))
    return losses


def generate(model: Any, ids: torch.Tensor, **options: Any) -> list[list[int]]:
    """The prompt and eight new tokens of each row."""
    mask = torch.ones_like(ids)
    with torch.no_grad():
        tokens = model.generate(ids, attention_mask=mask, max_new_tokens=8, **options)
    rows: list[list[int]] = tokens.tolist()
    return rows
