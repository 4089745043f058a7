"""Many calls: memory stays flat, and threads get what each would get alone."""

import gc
import threading
from pathlib import Path

import torch

import dubium
from tests import piles

PAGE = 4096


def resident():
    """Bytes of memory that this process has now."""
    return PAGE * int(Path("/proc/self/statm").read_text().split()[1])


def grow(calls):
    """Bytes that `calls` calls add to the memory after a warm-up."""
    networks, x = piles.networks(), torch.rand(2, 1, 12, 12)
    for turn in range(calls + calls // 5):
        dubium.explain(networks, x, method=("ua-backprop", "auto")[turn % 2])
        if turn == calls // 5:
            gc.collect()
            before = resident()
    gc.collect()
    return resident() - before


def thread_errors(threads, calls):
    """What threads that explain different images at a time get wrong."""
    networks = piles.networks()
    images = [torch.rand(2, 1, 12, 12, generator=torch.Generator().manual_seed(seed)) for seed in range(threads)]
    alone = [dubium.explain(networks, x).maps for x in images]
    wrong = []

    def work(number):
        for turn in range(calls):
            maps = dubium.explain(networks, images[number]).maps
            if not all(torch.equal(maps[kind], alone[number][kind]) for kind in maps):
                wrong.append((number, turn))

    running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return wrong
