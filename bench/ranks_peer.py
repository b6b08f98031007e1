"""What many ranks on one host cost Python's DDP, measured as ranks.cpp does.

ranks_peer.py SIZE PORT: over gloo; prints a line of JSON.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

WARM_UP = 3
STEPS = 20


def memory_mib():
    with open("/proc/self/smaps_rollup") as file:
        for line in file:
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024


def be_a_rank(rank, size):
    times = [time.perf_counter()]
    dist.init_process_group("gloo", rank=rank, world_size=size)
    times.append(time.perf_counter())
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    times.append(time.perf_counter())

    def train(steps):
        for _ in range(steps):
            model(torch.ones(8, 64)).sum().backward()

    train(WARM_UP)
    dist.barrier()
    start = time.perf_counter()
    train(STEPS)
    step = (time.perf_counter() - start) / STEPS
    threads, files = (
        len(os.listdir(f"/proc/self/{folder}")) for folder in ("task", "fd")
    )
    forming, constructing = times[1] - times[0], times[2] - times[1]
    most = torch.tensor(
        [forming, constructing, step, memory_mib(), threads, files],
        dtype=torch.float64,
    )
    dist.all_reduce(most, dist.ReduceOp.MAX)
    if rank == 0:
        most = most.tolist()
        result = {"name": f"ranks_{size}_python", "seconds": most[2]}
        result |= {"form_ms": most[0] * 1e3, "reducer_ms": most[1] * 1e3}
        result |= dict(zip(("pss_mib", "threads", "descriptors"), most[3:]))
        print(json.dumps(result), flush=True)
    dist.barrier()


def main():
    size, port = int(sys.argv[1]), sys.argv[2]
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    torch.set_num_threads(1)
    gate, end = os.pipe()
    ranks = []
    for rank in range(size):
        ranks.append(os.fork())
        if ranks[-1] == 0:
            os.close(end)
            os.read(gate, 1)  # until all have been forked
            be_a_rank(rank, size)
            os._exit(0)
    os.close(end)
    sys.exit(max(os.waitpid(rank, 0)[1] != 0 for rank in ranks))


if __name__ == "__main__":
    main()
