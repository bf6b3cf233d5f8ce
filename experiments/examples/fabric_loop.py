"""Lightning Fabric: the same parts by hand, `python -m experiments.examples.fabric_loop`."""

import lightning as L
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

import adaptive_sampling as ads
from experiments.examples.images import Classifier, make_images


def main(num_steps: int = 120, update_every: int = 8) -> ads.AdaptiveSampler:
    """Train; the weights follow the losses. On several ranks, gather ids and losses before `update`."""
    fabric = L.Fabric(accelerator="cpu")
    dataset = ads.with_ids(make_images())
    sampler = ads.AdaptiveSampler(dataset, seed=0)
    policy = ads.WeightPolicy(warmup=8, cooldown=0)
    policy.bind(len(dataset), num_steps)  # type: ignore[arg-type]
    model, optimizer = fabric.setup(net := Classifier().net, torch.optim.Adam(net.parameters(), lr=1e-2))
    loader = fabric.setup_dataloaders(
        DataLoader(dataset, batch_size=32, sampler=sampler), use_distributed_sampler=False
    )
    step, seen = 0, []
    while step < num_steps:
        for images, labels, ids in loader:
            losses = F.cross_entropy(model(images), labels, reduction="none")
            optimizer.zero_grad()
            fabric.backward(losses.mean())
            optimizer.step()
            seen.append((ids, losses.detach()))
            if (step := step + 1) % update_every == 0:
                update = policy.update(*(torch.cat(part).cpu().numpy() for part in zip(*seen, strict=True)), step=step)
                sampler.set_weights(policy.weights) if update.ids is None else sampler.update_weights(
                    update.ids, update.values
                )
                seen.clear()
    return sampler


if __name__ == "__main__":
    main()
