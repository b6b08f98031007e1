"""What the benchmarks compare with: Python's torch, one process for each rank.

Reads a command from each line of standard input, and answers with the seconds
that it took:
    net NAME MICRO_BATCHES BF16  wraps a net of nets.cpp, which BF16 (0 or 1)
                                 autocasts, in DistributedDataParallel
    step                         trains it for a step, as Trainer does
    drop                         frees it
    save PATH, load PATH         torch.save until it is on the disk, torch.load
    loader KIND SAMPLES BATCH WORKERS   makes a DataLoader, as loader.cpp does
    epoch                        reads all its batches
"""

import contextlib
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
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


class TransformerBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x):
        heads = self.qkv(self.norm1(x)).unflatten(-1, (3, -1, 64))
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind()
        mixed = F.scaled_dot_product_attention(query, key, value)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Lstm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lstm = nn.LSTM(width, width, num_layers=2)

    def forward(self, x):
        return self.lstm(x)[0]


NETS = {
    "mlp200": (lambda: Mlp(200, 64), (32, 64)),
    "mlp200_unused": (lambda: Mlp(200, 64, 10), (32, 64)),
    "big100": (lambda: Mlp(4, 2560), (16, 2560)),
    "blocks": (
        lambda: nn.Sequential(*(TransformerBlock(512) for _ in range(2))),
        (2, 64, 512),
    ),
    "lstm": (lambda: Lstm(256), (32, 16, 256)),
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


class Samples(torch.utils.data.Dataset):
    def __init__(self, kind, count):
        self.kind, self.count = kind, count
        side = 256 if kind == "copy" else 64
        self.values = (
            torch.randn(count, 16)
            if kind == "tiny"
            else torch.randint(256, (count, 3, side, side), dtype=torch.uint8)
        )

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        value = self.values[i]
        if self.kind == "copy":
            value = value[:, i % 32 : i % 32 + 224, i % 32 : i % 32 + 224]
            value = value.float().div_(255)
        elif self.kind == "decode":
            value = value.float()
            for _ in range(8):
                value.mul_(1.01).add_(0.5).clamp_(0, 255)
        return value, 0


class Peer:
    def loader(self, kind, samples, batch, workers):
        self.batches = torch.utils.data.DataLoader(
            Samples(kind, int(samples)),
            batch_size=int(batch),
            num_workers=int(workers),
            persistent_workers=workers != "0",
        )

    def epoch(self):
        for _ in self.batches:
            pass

    def net(self, name, micro_batches, bf16):
        if not dist.is_initialized():
            join_peers()
        make, shape = NETS[name]
        self.model = DistributedDataParallel(
            make(), find_unused_parameters=name == "mlp200_unused"
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-6)
        self.input = torch.randn(shape)
        self.micro_batches = int(micro_batches)
        self.bf16 = bf16 == "1"

    def step(self):
        self.optimizer.zero_grad()
        for i in range(1, self.micro_batches + 1):
            last = i == self.micro_batches
            with contextlib.nullcontext() if last else self.model.no_sync():
                with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
                    output = self.model(self.input)
                loss = output.float().pow(2).mean()
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
