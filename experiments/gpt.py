"""A small GPT as an ordinary LightningModule: it knows nothing of windows, weights or samplers."""

from __future__ import annotations

import math
from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """Causal self-attention and a two-layer network, each behind a norm and added to its input."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(d_model)
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.out = nn.Linear(d_model, d_model, bias=False)
        self.norm2 = nn.LayerNorm(d_model)
        self.up = nn.Linear(d_model, 4 * d_model)
        self.down = nn.Linear(4 * d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, T, d_model]` → the same shape."""
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class SmallGPT(pl.LightningModule):
    """Next-token model with learned positions and one matrix for input and output embeddings.

    Args:
        vocab_size: number of token ids.
        seq_len: longest input, in tokens.
        d_model: width.
        layers: number of blocks.
        heads: attention heads per block.
        lr: highest learning rate.
        max_steps: steps of the schedule: linear warm-up over 5 %, then a cosine down to 10 %.
    """

    def __init__(
        self,
        vocab_size: int = 4096,
        seq_len: int = 128,
        *,
        d_model: int = 64,
        layers: int = 3,
        heads: int = 2,
        lr: float = 3e-3,
        max_steps: int = 450,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.lr, self.max_steps = lr, max_steps
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(seq_len, d_model)
        self.blocks = nn.Sequential(*(Block(d_model, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(d_model)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                scale = 0.02 / math.sqrt(2 * layers) if name.endswith(("out.weight", "down.weight")) else 0.02
                nn.init.normal_(parameter, std=scale)

    def forward(self, input_ids: Tensor) -> Tensor:
        """int64 `[B, T]` → logits `[B, T, vocab_size]`."""
        x = self.tokens(input_ids) + self.positions.weight[: input_ids.shape[1]]
        return F.linear(self.norm(self.blocks(x)), self.tokens.weight)

    def loss(self, batch: dict[str, Any]) -> Tensor:
        """Mean cross-entropy per target, in nats."""
        logits = self(batch["input_ids"])
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), batch["labels"].view(-1))

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """Loss of a batch of windows."""
        loss = self.loss(batch)
        self.log("train_loss", loss, batch_size=len(batch["labels"]))
        return loss

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """Loss of a batch of held-out windows."""
        return self.loss(batch)

    def configure_optimizers(self) -> Any:
        """AdamW with warm-up and cosine."""
        matrices = [p for p in self.parameters() if p.ndim == 2]
        others = [p for p in self.parameters() if p.ndim != 2]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=self.lr, betas=(0.9, 0.95))
        warmup = max(1, self.max_steps // 20)

        def factor(step: int) -> float:
            if step < warmup:
                return (step + 1) / warmup
            progress = min(1.0, (step - warmup) / max(1, self.max_steps - warmup))
            return 0.1 + 0.45 * (1.0 + math.cos(math.pi * progress))

        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
