"""Read instruction data of several layouts as conversations, and encode them.

A conversation is a list of ``{"role", "content"}`` with roles system, user, assistant, tool.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chipset_layers.errors import LayerError

IGNORED = -100  # the label that no loss is taken on; PyTorch's default ignore_index
ROLES = {  # names that data sets use, to the names that chat templates use
    "human": "user",
    "gpt": "assistant",
    "function_call": "assistant",
    "tool_call": "assistant",
    "observation": "tool",
}

Conversation = list[dict[str, str]]


@dataclass(frozen=True)
class Example:
    """Token ids and, of equal length, the labels: the id where loss is taken, else -100."""

    ids: list[int]
    labels: list[int]


def read_conversations(path: Path) -> list[Conversation]:
    """Read a ``.json`` or ``.jsonl`` file (``.gz`` too) of instructions or conversations.

    Known rows: ``instruction``/``input``/``output``; ``messages``; ``conversations`` (with
    ``chosen``: the preferred answer is taken).

    Raises:
        LayerError: naming the file and the row that cannot be read.
    """
    conversations = []
    for number, row in enumerate(_rows(path), start=1):
        try:
            conversations.append(_conversation(row))
        except (KeyError, TypeError, AttributeError) as error:
            raise LayerError(
                f"row {number} of '{path}' is neither instruction/output nor messages nor "
                f"conversations ({type(error).__name__}: {error})"
            ) from None
    if not conversations:
        raise LayerError(f"'{path}' holds no rows")
    return conversations


def encode_conversation(tokenizer: Any, conversation: Conversation) -> Example:
    """Apply the chat template; take loss only on what the assistant says.

    The text is encoded in the pieces that a dialogue would produce it in: everything up to an
    answer, then the answer with the token that ends it.
    """
    ids: list[int] = []
    labels: list[int] = []
    done = ""
    for turn, message in enumerate(conversation):
        if message["role"] != "assistant":
            continue
        before = _render(tokenizer, conversation[:turn], answer_follows=True)
        after = _render(tokenizer, conversation[: turn + 1], answer_follows=False)
        if not (before.startswith(done) and after.startswith(before)):
            raise LayerError(
                "the model's chat template rewrites earlier turns, so the assistant's part of "
                "a conversation cannot be located; use single-turn data with this model"
            )
        question = tokenizer(before[len(done) :], add_special_tokens=False)["input_ids"]
        answer = tokenizer(after[len(before) :], add_special_tokens=False)["input_ids"]
        ids += question + answer
        labels += [IGNORED] * len(question) + _up_to_end(answer, tokenizer.eos_token_id)
        done = after
    return Example(ids, labels)


def encode_all(tokenizer: Any, conversations: list[Conversation], max_length: int) -> list[Example]:
    """Encode, cut at ``max_length`` tokens, and drop what has no token to learn from."""
    if not tokenizer.chat_template:
        raise LayerError("the model has no chat template; fine-tune an instruction model")
    examples = []
    for conversation in conversations:
        whole = encode_conversation(tokenizer, conversation)
        cut = Example(whole.ids[:max_length], whole.labels[:max_length])
        if any(label != IGNORED for label in cut.labels[1:]):
            examples.append(cut)
    if not examples:
        raise LayerError(
            f"none of the {len(conversations)} conversations has an assistant token within the "
            f"first {max_length} tokens; raise --max-length or check the data"
        )
    return examples


def _rows(path: Path) -> list[Any]:
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8")
        if path.name.removesuffix(".gz").endswith(".jsonl"):
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        rows = json.loads(text)
    except (OSError, ValueError) as error:
        raise LayerError(f"the data file '{path}' cannot be read: {error}") from None
    if not isinstance(rows, list):
        raise LayerError(f"the data file '{path}' holds no list of rows")
    return rows


def _conversation(row: dict[str, Any]) -> Conversation:
    if "instruction" in row:
        question = "\n".join(part for part in (row["instruction"], row.get("input")) if part)
        return [_message("user", question), _message("assistant", row["output"])]
    turns = row["messages"] if "messages" in row else row["conversations"]
    turns = [*turns, row["chosen"]] if "chosen" in row else turns
    messages = [
        _message(t.get("role") or t["from"], t["content"] if "content" in t else t["value"])
        for t in turns
    ]
    if system := "\n".join(part for part in (row.get("system"), row.get("tools")) if part):
        messages.insert(0, _message("system", system))
    return messages


def _message(role: str, content: Any) -> dict[str, str]:
    if isinstance(content, list):  # typed parts
        content = "\n".join(part["value"] if "value" in part else part["text"] for part in content)
    if not isinstance(content, str):
        raise TypeError(f"content of role '{role}' is {type(content).__name__}, not text")
    return {"role": ROLES.get(role, role), "content": content}


def _render(tokenizer: Any, conversation: Conversation, *, answer_follows: bool) -> str:
    text: str = tokenizer.apply_chat_template(
        conversation, tokenize=False, add_generation_prompt=answer_follows
    )
    return text


def _up_to_end(answer: list[int], end: int | None) -> list[int]:
    """The answer as labels; what the template puts after the end token is not learnt."""
    if end not in answer:
        return list(answer)
    last = len(answer) - answer[::-1].index(end)
    return answer[:last] + [IGNORED] * (len(answer) - last)
