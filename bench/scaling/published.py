"""Measurements of others, with where they stand."""

from dataclasses import dataclass

GPUS = (1, 2, 4, 8, 16)
BATCH = 32
# Multiply-adds per second in fp32: 15.7 and 10.6 TFLOP/s (NVIDIA's data sheets).
V100_PEAK = 15.7e12 / 2
P100_PEAK = 10.6e12 / 2


def seconds_of(rounded, per_second):
    """The table has each time twice: in seconds, rounded to 1 ms, and in
    samples per second, rounded down. The middle of what both allow."""
    low = max(rounded - 0.0005, BATCH / (per_second + 1))
    high = min(rounded + 0.0005, BATCH / per_second)
    return (low + high) / 2


def pytorch_table():
    """Seconds per step, p50: without ddp, then with it on GPUS.

    pytorch/benchmarks/distributed/ddp/README.md: PyTorch 1.4, NCCL, two DGX-1
    with 8 V100 and 4 x 100 Gbit/s InfiniBand each, fp32, batch 32.
    """
    rows = {
        "resnet50": ((.097, 329), (.100, 319), (.103, 310), (.103, 310),
                     (.104, 307), (.104, 306)),
        "resnet101": ((.162, 197), (.171, 187), (.176, 182), (.176, 182),
                      (.179, 179), (.179, 179)),
        "resnext50_32x4d": ((.145, 220), (.147, 217), (.153, 209),
                            (.153, 209), (.157, 204), (.157, 204)),
        "resnext101_32x8d": ((.415, 77), (.425, 75), (.438, 73), (.439, 72),
                             (.447, 71), (.450, 71))}
    return {net: [seconds_of(*cell) for cell in row]
            for net, row in rows.items()}


def overlap_gains():
    """Speedups by overlapping reductions with backward, by net and backend.

    Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel
    Training", PVLDB 13(12), arXiv:2006.15704, 32 GPUs: its sentence as others
    quote it. Step times, batch sizes and BERT's size are not in it.
    """
    return {("resnet50", "nccl"): .380, ("bert_large", "nccl"): .352,
            ("resnet50", "gloo"): .268, ("bert_large", "gloo"): .215}


@dataclass(frozen=True)
class Efficiency:
    net: str
    seconds: float  # of a step on one GPU
    published: float


def horovod_efficiencies():
    """horovod/docs/benchmarks.rst: 128 servers with 4 Pascal GPUs and 25 Gbit/s
    RoCE, 512 GPUs.

    Speeds of one P100, batch 64: TensorFlow's guide, performance/benchmarks.md
    (images per second: Inception-V3 142, VGG-16 154, ResNet-50 219, ResNet-152
    91.8). ResNet-101 has half of the layers between the last two: the mean of
    their times.
    """
    batch = 64
    return (Efficiency("inception_v3", batch / 142, .90),
            Efficiency("resnet101", batch * (1 / 219 + 1 / 91.8) / 2, .90),
            Efficiency("vgg16", batch / 154, .68))
