"""What the benchmarks compare with: Python's torch, one process for each rank.

Reads a command from each line of standard input, and answers with the seconds
that it took:
    net NAME MICRO_BATCHES  wraps a net of nets.cpp in DistributedDataParallel
    step                    trains it for a step, as Trainer (trainer.h) does
    drop                    frees it
    save PATH, load PATH    torch.save until it is on the disk, torch.load
"""

import contextlib
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Mlp(nn.Module):
    def __init__(self, count, width, skip=0):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Linear(width, width) for _ in range(count)
        )
        self.skip = skip

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            if not self.skip or i % self.skip:
                x = torch.relu(layer(x))
        return x


def convolution(inputs, outputs, size, stride):
    return nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)


class Block(nn.Module):
    """Of a ResNet. `convolutions`: outputs, size and stride of each."""

    def __init__(self, inputs, stride, *convolutions):
        super().__init__()
        self.convs, self.norms = nn.ModuleList(), nn.ModuleList()
        width = inputs
        for outputs, size, its_stride in convolutions:
            self.convs.append(convolution(width, outputs, size, its_stride))
            self.norms.append(nn.BatchNorm2d(outputs))
            width = outputs
        self.downsample = None
        if stride != 1 or inputs != width:
            self.downsample = nn.Sequential(
                convolution(inputs, width, 1, stride), nn.BatchNorm2d(width)
            )

    def forward(self, images):
        x = images
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms)):
            x = norm(conv(x.relu_() if i else x))
        x += self.downsample(images) if self.downsample else images
        return x.relu_()


def basic_block(inputs, planes, stride):
    return Block(inputs, stride, (planes, 3, stride), (planes, 3, 1))


def resnet(block, counts, expansion=1):
    layers = [convolution(3, 64, 3, 1), nn.BatchNorm2d(64), nn.ReLU(True)]
    width = 64
    for planes, count in zip((64, 128, 256, 512), counts):
        for i in range(count):
            stride = 2 if i == 0 and planes > 64 else 1
            layers.append(block(width, planes, stride))
            width = expansion * planes
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)
    )


NETS = {
    "mlp200": (lambda: Mlp(200, 64), (32, 64)),
    "mlp200_unused": (lambda: Mlp(200, 64, 10), (32, 64)),
    "big100": (lambda: Mlp(4, 2560), (16, 2560)),
    "resnet18": (lambda: resnet(basic_block, (2, 2, 2, 2)), (4, 3, 32, 32)),
}


def join_peers(backend="gloo"):
    """On the store that ddprun serves, which C++'s ranks use as well."""
    rank, size = (
        int(os.environ.get(name, default))
        for name, default in (("RANK", 0), ("WORLD_SIZE", 1))
    )
    if size == 1:
        store = dist.HashStore()
    else:
        store = dist.TCPStore(
            os.environ["MASTER_ADDR"],
            int(os.environ["MASTER_PORT"]),
            is_master=False,
        )
    dist.init_process_group(
        backend,
        store=dist.PrefixStore("python_peer", store),
        rank=rank,
        world_size=size,
    )


class Peer:
    def net(self, name, micro_batches):
        if not dist.is_initialized():
            join_peers()
        make, shape = NETS[name]
        self.model = DistributedDataParallel(
            make(), find_unused_parameters=name == "mlp200_unused"
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-6)
        self.input = torch.randn(shape)
        self.micro_batches = int(micro_batches)

    def step(self):
        self.optimizer.zero_grad()
        for i in range(1, self.micro_batches + 1):
            last = i == self.micro_batches
            with contextlib.nullcontext() if last else self.model.no_sync():
                loss = self.model(self.input).pow(2).mean()
                if self.micro_batches > 1:
                    loss = loss / self.micro_batches
                loss.backward()
        self.optimizer.step()

    def drop(self):
        del self.model, self.optimizer

    def save(self, path):
        if not hasattr(self, "plain"):
            self.plain = NETS["big100"][0]()
        with open(path, "wb") as file:
            torch.save(self.plain.state_dict(), file)
            file.flush()
            os.fsync(file.fileno())

    def load(self, path):
        self.plain.load_state_dict(torch.load(path))


def answer(peer):
    """Has `peer` carry out each line; prints the seconds that this took, or
    what its method returned in their place."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what others print is no answer
    torch.set_num_threads(1)
    for line in sys.stdin:
        command, *arguments = line.split()
        start = time.perf_counter()
        result = getattr(peer, command)(*arguments)
        took = time.perf_counter() - start
        print(took if result is None else result, file=answers)


if __name__ == "__main__":
    answer(Peer())
