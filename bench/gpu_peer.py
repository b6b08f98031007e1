"""What ddp_bench_gpu compares with: Python's torch on the same GPU.

Reads a command from each line of standard input, and answers with a number:
    net NAME DTYPE OPTIMIZER  wraps a net of nets.cpp in
                              DistributedDataParallel (seconds)
    steps N                   trains it for N steps (seconds)
    host                      of these, until all was queued on the GPU
    drop                      frees it (seconds)
"""

import contextlib
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from python_peer import (
    Block,
    Mlp,
    TransformerBlock,
    answer,
    join_peers,
    resnet,
)


def bottleneck(inputs, planes, stride):
    outputs = 4 * planes
    return Block(
        inputs, stride, (planes, 1, 1), (planes, 3, stride), (outputs, 1, 1)
    )


NETS = {
    "mlp200": (lambda: Mlp(200, 64), (32, 64)),
    "wide4096": (lambda: Mlp(4, 4096), (32, 4096)),
    "resnet50": (
        lambda: resnet(bottleneck, (3, 4, 6, 3), expansion=4),
        (64, 3, 64, 64),
    ),
    "transformer": (
        lambda: nn.Sequential(*(TransformerBlock(1024) for _ in range(6))),
        (8, 256, 1024),
    ),
}


class Peer:
    def net(self, name, dtype, optimizer):
        if not dist.is_initialized():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
            join_peers("nccl")
        device = torch.device("cuda", torch.cuda.current_device())
        make, shape = NETS[name]
        # What costs Python's DDP least: gradients that are views of buckets,
        # and no broadcast of buffers, which a Reducer alone does not do either.
        self.model = DistributedDataParallel(
            make().to(device),
            device_ids=[device],
            gradient_as_bucket_view=True,
            broadcast_buffers=False,
        )
        self.optimizer = None
        if optimizer == "sgd":
            self.optimizer = torch.optim.SGD(
                self.model.parameters(), 1e-6, momentum=0.9, fused=True
            )
        self.cast = contextlib.nullcontext()
        if dtype == "bf16":
            self.cast = torch.autocast("cuda", torch.bfloat16)
        self.input = torch.randn(shape, device=device)

    def steps(self, count):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(int(count)):
            self.model.zero_grad()
            with self.cast:
                output = self.model(self.input)
            output.float().pow(2).mean().backward()
            if self.optimizer:
                self.optimizer.step()
        self.host_seconds = time.perf_counter() - start
        torch.cuda.synchronize()
        return time.perf_counter() - start

    def host(self):
        return self.host_seconds

    def drop(self):
        del self.model, self.optimizer


if __name__ == "__main__":
    answer(Peer())
    if dist.is_initialized():
        dist.destroy_process_group()
