"""The nets of the comparison; nets.h has the same, with the same operations in
the same order."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Layers(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(48, 97)
        self.wide = nn.Linear(97, width)
        self.last = nn.Linear(width, 7)

    def forward(self, x, rank, step):
        return self.last(torch.relu(self.wide(torch.relu(self.first(x)))))


class Branches(nn.Module):
    def __init__(self, turn):
        super().__init__()
        self.stem = nn.Linear(48, 97)
        self.left = nn.Linear(97, 131)
        self.never = nn.Linear(97, 131)
        self.right = nn.Linear(97, 131)
        self.turn = turn

    def forward(self, x, rank, step):
        choice = 0 if self.turn == "by step" else rank
        choice += 0 if self.turn == "by rank" else step
        all_left = self.turn == "at times" and step % 4 >= 2
        y = torch.relu(self.stem(x))
        return self.left(y) if all_left or choice % 2 == 0 else self.right(y)


class Dtypes(nn.Module):
    def __init__(self):
        super().__init__()
        self.single = nn.Linear(48, 61)
        self.bfloat = nn.Linear(61, 53)
        self.half_precision = nn.Linear(53, 47)
        self.twice = nn.Linear(47, 41)
        self.last = nn.Linear(41, 7)
        self.bfloat.to(torch.bfloat16)
        self.half_precision.to(torch.half)
        self.twice.to(torch.double)

    def forward(self, x, rank, step):
        y = torch.relu(self.single(x))
        y = torch.relu(self.bfloat(y.to(torch.bfloat16)))
        y = torch.relu(self.half_precision(y.to(torch.half)))
        y = torch.relu(self.twice(y.to(torch.double)))
        return self.last(y.to(torch.float))


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 9, sparse=True)
        self.bag = nn.EmbeddingBag(30, 9, mode="sum", sparse=True)
        self.last = nn.Linear(9, 7)

    def forward(self, x, rank, step):
        words = (x.abs() * 10).to(torch.long)
        return self.last(
            self.table(words.remainder(50)).mean(1)
            + self.bag(words.remainder(30))
        )


class Images(nn.Module):
    def __init__(self, channels_last):
        super().__init__()
        self.first = nn.Conv2d(3, 5, 2)
        self.norm = nn.BatchNorm2d(5)
        self.second = nn.Conv2d(5, 6, 2)
        self.last = nn.Linear(24, 7)
        if channels_last:
            self.to(memory_format=torch.channels_last)

    def forward(self, x, rank, step):
        y = torch.relu(self.norm(self.first(x.view(4, 3, 4, 4))))
        return self.last(torch.relu(self.second(y)).flatten(1))


class Oddities(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((), 1.5))
        self.nothing = nn.Parameter(torch.zeros(0, 3))
        self.frozen = nn.Linear(48, 61)
        self.again = nn.Linear(61, 61)
        self.last = nn.Linear(61, 7)
        self.frozen.weight.requires_grad_(False)

    def forward(self, x, rank, step):
        y = torch.tanh(self.again(torch.tanh(self.again(self.frozen(x)))))
        return self.last(y) * self.scale + self.nothing.sum()


class Checkpoints(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(48, 61)
        self.again = nn.Linear(61, 61)
        self.middle = nn.Linear(61, 61)
        self.last = nn.Linear(61, 7)

    def checkpoint(self, x):
        return checkpoint(
            lambda x: torch.tanh(self.again(x)), x, use_reentrant=True
        )

    def forward(self, x, rank, step):
        y = self.checkpoint(torch.tanh(self.first(x)))
        return self.last(self.checkpoint(torch.tanh(self.middle(y))))


NETS = {
    "layers": lambda: Layers(2707),
    "narrow-layers": lambda: Layers(211),
    "branches-by-rank": lambda: Branches("by rank"),
    "branches-by-step": lambda: Branches("by step"),
    "alternating-branches": lambda: Branches("alternating"),
    "branches-at-times": lambda: Branches("at times"),
    "dtypes": Dtypes,
    "words": Words,
    "images": lambda: Images(False),
    "channels-last-images": lambda: Images(True),
    "checkpoints": Checkpoints,
    "oddities": Oddities,
}
