"""Reads and writes safetensors files independently of the library.

    safetensors_check.py write FILE   2x3 tensors 0..5, one per dtype
    safetensors_check.py read FILE    prints each tensor and the metadata

It follows the format's specification with json and torch alone. Where the
`safetensors` package is installed, it has to agree.
"""

import json
import struct
import sys

import torch

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "F8_E8M0": torch.float8_e8m0fnu,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "C64": torch.complex64,
}


def raw(tensor):
    return bytes(tensor.contiguous().flatten().view(torch.uint8).tolist())


def write(path):
    tensors = {
        name: torch.arange(6).reshape(2, 3).to(dtype)
        for name, dtype in DTYPES.items()
    }
    header, data = {"__metadata__": {"by": "Python"}}, b""
    for name, tensor in tensors.items():
        begin = len(data)
        data += raw(tensor)
        header[name] = {
            "dtype": name,
            "shape": list(tensor.shape),
            "data_offsets": [begin, len(data)],
        }
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read(path):
    with open(path, "rb") as file:
        content = file.read()
    (length,) = struct.unpack("<Q", content[:8])
    assert length % 8 == 0, length
    header = json.loads(content[8 : 8 + length])
    data = content[8 + length :]
    metadata = header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        dtype = DTYPES[entry["dtype"]]
        assert begin % dtype.itemsize == 0, (name, "is not aligned")
        flat = (
            torch.frombuffer(bytearray(data[begin:end]), dtype=dtype)
            if end > begin
            else torch.empty(0, dtype=dtype)
        )
        tensors[name] = flat.reshape(entry["shape"])
        print(name, entry["dtype"], *entry["shape"], raw(tensors[name]).hex())
    print("by", metadata["by"])
    compare_with_package(path, tensors)


def compare_with_package(path, tensors):
    try:
        from safetensors.torch import load_file
    except ImportError:
        return
    loaded = load_file(path)
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        other = loaded[name]
        assert other.dtype == tensor.dtype and other.shape == tensor.shape, name
        assert raw(other) == raw(tensor), name


{"read": read, "write": write}[sys.argv[1]](sys.argv[2])
