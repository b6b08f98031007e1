"""Measurements of others, with where they stand."""

from dataclasses import dataclass

GPUS = (1, 2, 4, 8, 16)
BATCH = 32
# Multiply-adds per second (NVIDIA's data sheets): 15.7 and 10.6 TFLOP/s in
# fp32, 989.4 in bf16.
V100_PEAK = 15.7e12 / 2
P100_PEAK = 10.6e12 / 2
H100_PEAK = 989.4e12 / 2


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


@dataclass(frozen=True)
class OwnStep:
    net: str
    bf16: bool
    local: float  # seconds of a step without ddp
    ddp: float    # with it

    @property
    def overhead(self):
        return self.ddp / self.local - 1


def own_steps():
    """docs/gpu-results.md, on one H100: steps as CUDA graphs, and those of
    other steps whose time is the GPU's, not the host's."""
    return ((OwnStep("resnet50_64", False, .040511, .040559),
             OwnStep("resnet50_64", True, .030147, .030184),
             OwnStep("transformer", False, .023200, .023469),
             OwnStep("transformer", True, .004215, .004471)),
            (OwnStep("resnet50_64", False, .041951, .041900),
             OwnStep("resnet50_64", True, .032104, .032006),
             OwnStep("transformer", False, .023786, .024048)))


VIT_BATCH = 128


def vit_table():
    """Images per second of ViT-H/14 by number of GPUs: on tiny-224 (100,000
    images), and on micro-224 with 32 GPUs, where an epoch has 3 steps.

    J. Torres, "Supercomputing for Artificial Intelligence", repository
    jorditorresBCN/supercomputing-for-ai-book of 2026, ch12.md, tables 12.5
    and 12.1: Python's DDP of PyTorch 2.4 in bf16 with torch.compile, batch 128,
    on MareNostrum 5 (ch02.md): nodes of 4 H100 with 4 x 200 Gbit/s.
    """
    return {1: 242, 2: 475, 4: 935, 8: 1817, 16: 3597, 32: 6914}, 5205


def all_reduces():
    """Seconds by MiB, of 16 H100 in 2 nodes over NCCL 2.20, in December 2025:
    repository drmysore/nebius-h100-16gpu-benchmark,
    exercise2/results/benchmark_16gpu.json."""
    return {1: 88e-6, 10: 157e-6, 100: 647e-6, 1000: 4.520e-3}


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
