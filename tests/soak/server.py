"""The explorer: visitors side by side, then rubbish; alive, correct, and bounded in memory."""

import random
import signal
from concurrent.futures import ThreadPoolExecutor

from tests.web.explorer_server import explorer
from tests.web.rubbish import functions, send_rubbish, show_image

MEMORY = 2**30  # bytes that the whole process may take, torch and all


def try_server(folder, visitors, requests):
    """What went wrong, or None, and what is to be counted."""
    place = folder / "server"
    place.mkdir(exist_ok=True)
    with explorer(place, end=signal.SIGTERM) as server:  # a run in the background has SIGINT ignored
        wrong = wrong_visits(server, visitors) + wrong_answers(server, requests)
        peak = server.peak_memory()
        if not server.is_alive():
            wrong.append("not alive")
    if peak > MEMORY:
        wrong.append(f"{peak} bytes of memory")
    counts = {"visitors at a time": visitors, "mutated requests": requests, "MiB at most": peak // 2**20}
    return "; ".join(wrong[:5]) or None, counts


def wrong_visits(server, visitors):
    """Visitors at a time who are not shown what each would be shown alone."""

    def visit(number):
        return number % 4, show_image(server, number % 4, f"visitor-{number}")

    alone = dict(visit(number) for number in range(4))
    with ThreadPoolExecutor(visitors) as threads:
        found = list(threads.map(visit, range(1000, 1000 + visitors)))
    return [f"visitor {number}" for number, (image, seen) in enumerate(found) if seen != alone[image]]


def wrong_answers(server, requests):
    """Answers to rubbish that show a traceback or a file of this machine."""
    rng, numbers = random.Random(0), functions(server)
    found = ((turn, send_rubbish(server, rng, turn, numbers)[1]) for turn in range(requests))
    return [f"request {turn}" for turn, said in found if b"Traceback" in said or b"root:" in said]
