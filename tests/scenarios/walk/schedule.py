"""The lanes of one pair of database and ZooKeeper: they take rows from one queue and walk at the same time.

Waiting is most of a row's time, so more lanes than cores are of use.
"""

import concurrent.futures
import queue
import threading
import time


class Schedule:
    """Walks rows in the background. Every row's result is a future."""

    def __init__(self, name, lanes, rows):
        self.name = name
        self.results = {row: concurrent.futures.Future() for row in rows}
        self.queue = queue.SimpleQueue()
        for row in rows:
            self.queue.put(row)
        self.began = time.monotonic()
        self.stopped = threading.Event()
        self.threads = [threading.Thread(target=self._work, args=(lane,), name=lane.name) for lane in lanes]
        for thread in self.threads:
            thread.start()

    def _work(self, lane):
        try:
            while not self.stopped.is_set():
                try:
                    row = self.queue.get_nowait()
                except queue.Empty:
                    return
                began = time.monotonic()
                try:
                    done = lane.walk(row)
                except BaseException as error:  # noqa: BLE001: a test raises it where it belongs
                    self.results[row].set_exception(error)
                    done = f"FAILED {type(error).__name__}"
                else:
                    self.results[row].set_result(time.monotonic() - began)
                now = time.monotonic()
                print(f"{now - self.began:6.1f} s {lane.name}: {row.name}: {done}, {now - began:.1f} s", flush=True)
        finally:
            lane.close()

    def result(self, row, within_s):
        """What became of a row; raises what it failed with."""
        return self.results[row].result(within_s)

    def close(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join()
