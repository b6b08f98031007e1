"""Writes files with torch.save and reads them with torch.load.

    torch_file_check.py write FOLDER     files, and the text of each beside it
    torch_file_check.py refused FOLDER   files that the library does not read
    torch_file_check.py read FILE...     prints the text of each file

A text has a line for each value: where it is, what it is, and its bits.
"""

import argparse
import collections
import struct
import sys
import warnings

import torch
from torch import nn

DTYPES = [
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16",
    "int8", "uint8", "bool", "complex64", "complex128", "complex32", "uint16",
    "uint32", "uint64", "float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz",
    "float8_e4m3fnuz", "float8_e8m0fnu",
]  # fmt: skip


def raw(tensor):
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return bytes(plain.flatten().view(torch.uint8).tolist()).hex()


def lines(value, where=""):
    if isinstance(value, torch.Tensor):
        name = str(value.dtype).removeprefix("torch.")
        sizes = ",".join(map(str, value.shape))
        grad = " grad" if value.requires_grad else ""
        yield f"{where} {name} [{sizes}] {raw(value)}{grad}"
    elif isinstance(value, dict):
        yield f"{where} dict {len(value)}"
        for key, item in value.items():
            yield from lines(item, f"{where}/{key}")
    elif isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        yield f"{where} {kind} {len(value)}"
        for i, item in enumerate(value):
            yield from lines(item, f"{where}/{i}")
    elif isinstance(value, float):
        yield f"{where} float {struct.pack('>d', value).hex()}"
    elif value is None or isinstance(value, bool):
        yield f"{where} {value}"
    elif isinstance(value, int):
        yield f"{where} int {value}"
    else:
        assert isinstance(value, str), type(value)
        yield f"{where} str {value.encode().hex()}"


def text(value):
    return "".join(line + "\n" for line in lines(value))


def every_dtype():
    values = torch.arange(1, 7).reshape(2, 3)
    for name in DTYPES:
        dtype = getattr(torch, name)
        if name == "float8_e8m0fnu":
            yield name, values.to(torch.uint8).view(dtype)
        else:
            yield name, values.to(dtype)


def shapes():
    base = torch.arange(24.0).reshape(4, 6)
    tied = torch.rand(3, 3)
    complex_ = torch.complex(base, base + 1)
    return {
        "base": base,
        "transposed": base.t(),
        "strided": base[1:, ::2],
        "expanded": torch.rand(1, 2).expand(3, 2),
        "tied": tied,
        "tied again": tied,
        "scalar": torch.tensor(2.5),
        "empty": torch.empty(0),
        "empty too": torch.empty(2, 0, 3, dtype=torch.int64),
        "empty, at an offset": torch.empty(0, 8).chunk(2, 1)[1],
        "empty part": base[4:, 3:],
        "part of odd bytes": torch.arange(5, dtype=torch.uint8)[:4].view(
            torch.uint16
        ),
        "conjugate": complex_.conj(),
        "negative": (complex_ + 1).conj().imag,
        "parameter": nn.Parameter(torch.rand(2)),
        "no gradient": nn.Parameter(torch.rand(2), requires_grad=False),
        "requires grad": torch.rand(2, requires_grad=True),
        "many dimensions": torch.rand([1] * 10 + [2]),
    }


def with_attributes():
    parameter = nn.Parameter(torch.rand(2))
    parameter.partition = "rows"
    tensor = torch.rand(3)
    tensor.note = 7
    return {"parameter": parameter, "tensor": tensor}


def plain():
    return {
        "none": None,
        "bools": [True, False],
        "ints": [0, 1, 255, 256, 65535, 65536, 2**31 - 1, 2**31, -1, -(2**31),
                 -(2**31) - 1, 2**63 - 1, -(2**63), 2**40],
        "floats": (0.0, -0.0, 1.5, 1e300, float("inf"), float("nan"), 5e-324),
        "strings": ["", "a", "ü€😀", "x" * 300, "\x00\n"],
        "nested": {"a": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [[], [{}]]]},
        "size": torch.Size([2, 3]),
        "counter": collections.Counter("abca"),
        "ordered": collections.OrderedDict([("z", 1), ("a", 2)]),
        3: "three",
        -(2**40): "far",
        "many": list(range(3000)),
        "long": {str(i): i for i in range(3000)},
    }  # fmt: skip


class Own(torch.Tensor):
    pass


def nets():
    yield "conv", nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()
    )
    tied = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5, bias=False))
    tied[1].weight = tied[0].weight
    yield "tied", tied
    yield "none", nn.Sequential()


def training(make):
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    optimizer = make(
        [
            {"params": net[0].parameters()},
            {"params": [*net[1].parameters(), *net[2].parameters()], "lr": 0.5},
        ]
    )
    state = {"model": net.state_dict(), "epoch": 3, "best": 0.25}
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 2, 2])
    for _ in range(4):
        optimizer.zero_grad()
        net(torch.rand(8, 3)).sum().backward()
        optimizer.step()
        scheduler.step()
    state["optimizer"] = optimizer.state_dict()
    state["rng"] = torch.get_rng_state()
    state["scheduler"] = scheduler.state_dict()
    return state


def values():
    yield "dtypes", dict(every_dtype())
    yield "shapes", shapes()
    yield "attributes", with_attributes()
    yield "plain", plain()
    yield "tensor", torch.rand(3)
    yield "number", 7
    for name, net in nets():
        yield f"net_{name}", net.state_dict()
    optim = torch.optim
    yield "sgd", training(lambda p: optim.SGD(p, 0.1, momentum=0.9))
    yield "adam", training(lambda p: optim.Adam(p, 0.1, amsgrad=True))


def write(folder):
    def save(name, value, **options):
        torch.save(value, f"{folder}/{name}.pt", **options)
        with open(f"{folder}/{name}.txt", "w") as file:
            file.write(text(value))

    for name, value in values():
        save(name, value)
        for protocol in (3, 4, 5):
            save(f"{name}_{protocol}", value, pickle_protocol=protocol)
    torch.serialization.set_crc32_options(False)
    save("without_crc", plain())
    torch.serialization.set_crc32_options(True)


def write_refused(folder):
    value = {"a": torch.rand(2)}
    path = f"{folder}/before 1.6.pt"
    torch.save(value, path, _use_new_zipfile_serialization=False)
    torch.jit.script(nn.Linear(2, 2)).save(f"{folder}/torchscript.pt")
    refused = {
        "set": {1},
        "frozenset": frozenset([1]),
        "bytes": b"ab",
        "bytearray": bytearray(b"ab"),
        "complex": 1j,
        "large": 2**63,
        "dtype": torch.float32,
        "device": torch.device("cpu"),
        "storage": torch.rand(2).untyped_storage(),
        "sparse": torch.eye(3).to_sparse(),
        "quantized": torch.quantize_per_tensor(torch.rand(2), 1, 0, torch.qint8),
        "meta": torch.empty(2, device="meta"),
        "module": nn.Linear(2, 2),
        "defaultdict": collections.defaultdict(list),
        "float key": {0.5: 1},
        "tuple key": {(1, 2): 1},
        "none key": {None: 1},
        "bool key": {True: 1},
        "subclass": torch.rand(2).as_subclass(Own),
        "function": torch.nn.functional.relu,
    }
    args = argparse.Namespace(lr=0.1, device=torch.device("cpu"), hook=print)
    torch.save(
        {"model": nn.Linear(2, 2).state_dict(), "args": args, "epoch": 3},
        f"{folder}/reference script.pt",
    )
    torch.save(
        {
            "model": collections.defaultdict(int, nn.Linear(2, 2).state_dict()),
            "ema": nn.Linear(2, 2).state_dict(),
        },
        f"{folder}/own dict.pt",
    )
    for name, value in refused.items():
        for protocol in (2, 5):
            path = f"{folder}/{name} {protocol}.pt"
            torch.save({"x": value}, path, pickle_protocol=protocol)


def read(paths):
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "ComplexHalf")  # of the dtype, not the file
    for path in paths:
        value = torch.load(path)
        again = torch.load(path, mmap=True)
        assert text(value) == text(again)
        print(text(value), end="")
        if isinstance(value, dict) and "shared" in value:
            a, b = value["shared"]
            a.fill_(-1)
            print("shares", bool((b == -1).all()))


torch.manual_seed(1)
if sys.argv[1] == "read":
    read(sys.argv[2:])
else:
    {"write": write, "refused": write_refused}[sys.argv[1]](sys.argv[2])
