"""The workers of one matrix take rows from one queue. Rows mostly wait, so more workers than cores are useful."""

import concurrent.futures
import queue
import threading
import time


class Schedule:
    def __init__(self, workers, rows):
        self.results = {row: concurrent.futures.Future() for row in rows}
        self.queue = queue.SimpleQueue()
        for row in rows:
            self.queue.put(row)
        self.not_closed = []
        self.stopped = threading.Event()
        self.threads = [threading.Thread(target=self._work, args=(worker,), name=worker.name) for worker in workers]
        for thread in self.threads:
            thread.start()

    def _work(self, worker):
        try:
            while not self.stopped.is_set():
                try:
                    row = self.queue.get_nowait()
                except queue.Empty:
                    return
                began = time.monotonic()
                try:
                    hit = worker.run(row)
                except BaseException as error:
                    self.results[row].set_exception(error)
                else:
                    self.results[row].set_result(f"{hit} was hit, {time.monotonic() - began:.1f} s, {worker.name}")
        finally:
            try:
                worker.close()
            except BaseException as error:
                self.not_closed.append(f"{worker.name}: {error}")

    def result(self, row, within_s):
        return self.results[row].result(within_s)

    def close(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join()
        assert not self.not_closed, "\n".join(self.not_closed)
