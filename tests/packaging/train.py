"""Trains by Python's DDP and compares the ranks' weights.

With --fail-once, rank 1 of the first attempt ends before it trains.
"""

import os
import sys

import torch
import torch.distributed as dist


def train():
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    weights = [torch.empty(1, 4) for _ in range(size)]
    dist.all_gather(weights, model.module.weight.detach())
    same = all(torch.equal(weights[0], each) for each in weights)
    print(f"rank {rank} of {size}: {'the same' if same else 'other'} weights",
          flush=True)
    return same


dist.init_process_group("gloo")
if ("--fail-once" in sys.argv and dist.get_rank() == 1
        and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"):
    os._exit(3)
is_same = train()
dist.barrier()
dist.destroy_process_group()
sys.exit(not is_same)
