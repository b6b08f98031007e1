"""Checks what examples/cifar10_resnet/event_file.h writes: its records and their
checksums, and what TensorBoard makes of them.

Usage: event_file_test.py WRITER, or with --tensorboard by a Python that has it.
"""

import math
import pathlib
import struct
import subprocess
import sys
import tempfile

FAR = 1 << 40
FIRST = [("diverged", 10, math.nan),
         *(("train/loss", step, 1 / step) for step in (10, 20, 30))]
SECOND = [("far", FAR, 1e30), ("train/loss", 20, -2)]


def masked_crc(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    at = 0
    while at < len(data):
        (size, check) = struct.unpack_from("<QI", data, at)
        assert check == masked_crc(data[at:at + 8]), "checksum of a length"
        content = data[at + 12:at + 12 + size]
        (check,) = struct.unpack_from("<I", data, at + 12 + size)
        assert check == masked_crc(content), "checksum of a record"
        yield content
        at += 16 + size


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    """{number: value} of a message, whose fields have to be different."""
    found, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(key & 7)
            if size is None:
                assert key & 7 == 2, "wire type"
                size, at = varint(data, at)
            value = data[at:at + size]
            assert len(value) == size, "end of a field"
            at += size
        assert key >> 3 not in found, "a field twice"
        found[key >> 3] = value
    return found


def check_format(paths):
    for path, step, expected in zip(paths, (0, 20), (FIRST, SECOND), strict=True):
        version, start, *rest = map(fields, records(path.read_bytes()))
        assert version[3] == b"brain.Event:2", version
        assert start[2] == step and fields(start[7]) == {1: 1}, start
        values = []
        for event in rest:
            assert struct.unpack("<d", event[1])[0] > 1e9, "the time is in seconds"
            scalar = fields(fields(event[5])[1])
            (value,) = struct.unpack("<f", scalar[2])
            values.append((scalar[1].decode(), event[2], value))
        check_values(sorted(values, key=lambda value: value[:2]), expected)


def check_values(values, expected):
    assert [value[:2] for value in values] == [value[:2] for value in expected], values
    for (_, _, value), (_, _, wanted) in zip(values, expected):
        as_float = struct.unpack("<f", struct.pack("<f", wanted))[0]
        assert value == as_float or math.isnan(value) and math.isnan(wanted), values


def check_tensorboard(folder):
    from tensorboard.backend.event_processing import event_accumulator
    accumulator = event_accumulator.EventAccumulator(folder)
    accumulator.Reload()
    values = sorted(
        (tag, event.step, event.value)
        for tag in accumulator.Tags()["scalars"] for event in accumulator.Scalars(tag))
    # Steps 20 and 30 of the first run are those of the second.
    check_values(values, [FIRST[0], SECOND[0], FIRST[1], SECOND[1]])


def main():
    assert masked_crc(b"123456789") == (
        (0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], folder + "/events"], check=True)
        paths = sorted(pathlib.Path(folder, "events").iterdir())
        assert all(path.name.startswith("events.out.tfevents.") for path in paths)
        if "--tensorboard" in sys.argv:
            check_tensorboard(folder + "/events")
        else:
            check_format(paths)
    print("as expected")


main()
