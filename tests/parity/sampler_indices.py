"""Prints the indices that torch.utils.data.DistributedSampler draws.

One line per case: size, world, rank, shuffle, drop_last, seed, epoch, indices.
"""

from itertools import product

from torch.utils.data import DistributedSampler

SIZES = [*range(1, 51), 1009]
WORLDS = range(1, 8)
SEEDS = [0, 42, 2**40 + 7]
EPOCHS = [0, 1, 5]

for size, world, shuffle, drop_last in product(
    SIZES, WORLDS, (True, False), (True, False)
):
    draws = product(SEEDS, EPOCHS) if shuffle else [(0, 3)]
    for (seed, epoch), rank in product(draws, range(world)):
        sampler = DistributedSampler(
            range(size),
            num_replicas=world,
            rank=rank,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
        )
        sampler.set_epoch(epoch)
        print(
            size, world, rank, int(shuffle), int(drop_last), seed, epoch, *sampler
        )
