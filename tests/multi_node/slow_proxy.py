"""Carries TCP connections with a delay, and now and then not at all for a
while.

Usage: slow_proxy.py ADDRESS PORT TO_ADDRESS DELAY STALL: seconds each way, and
the most that it stalls, once in five seconds or so.
"""

import asyncio
import random
import sys

address, port, to_address = sys.argv[1], int(sys.argv[2]), sys.argv[3]
delay, stall = float(sys.argv[4]), float(sys.argv[5])
may_carry = asyncio.Event()


async def stalls():
    generator = random.Random(1)
    while True:
        may_carry.set()
        await asyncio.sleep(generator.uniform(2, 5))
        may_carry.clear()
        await asyncio.sleep(generator.uniform(stall / 2, stall))
        print("stalled", flush=True)


async def deliver(waiting, writer):
    while True:
        due, data = await waiting.get()
        await asyncio.sleep(due - asyncio.get_running_loop().time())
        await may_carry.wait()
        if not data:
            writer.close()
            return
        writer.write(data)


async def carry(reader, writer):
    waiting = asyncio.Queue()
    delivery = asyncio.create_task(deliver(waiting, writer))
    data = b"-"
    while data:
        try:
            data = await reader.read(65536)
        except OSError:
            data = b""
        waiting.put_nowait((asyncio.get_running_loop().time() + delay, data))
    await delivery


async def connect(reader, writer):
    try:
        far_reader, far_writer = await asyncio.open_connection(to_address,
                                                               port)
    except OSError:
        writer.close()
        return
    await asyncio.gather(carry(reader, far_writer), carry(far_reader, writer))


async def main():
    await asyncio.start_server(connect, address, port)
    print("listening", flush=True)
    await stalls()


asyncio.run(main())
