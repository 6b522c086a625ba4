"""The logs of an installation: followed while it runs, and searched for unexpected lines.

An engine's directory with its log is removed when the engine has ended, so every log is opened as soon as it exists and is read
through the open file.
"""

import glob
import os
import re
import threading

from harness.secret_scan import KEPT

LEVEL = re.compile(r"^\S+Z\s+(WARN|ERROR)\s")
PANIC = re.compile(r"panicked at|SQLITE_CORRUPT|stack backtrace")
LOOK_EVERY_S = 0.1


class Logs:
    def __init__(self, *patterns):
        self.patterns = patterns
        self.files = {}
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self.mark = {}
        self.allowed = []
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()

    def _follow(self):
        while not self.ended.wait(LOOK_EVERY_S):
            self._open_new()

    def _open_new(self):
        with self.lock:
            for pattern in self.patterns:
                for path in glob.glob(pattern):
                    if path not in self.files:
                        try:
                            self.files[path] = open(path, "rb")  # noqa: SIM115 -- held until close()
                        except OSError:
                            continue
                        KEPT.keep_engine(os.path.dirname(path))

    def text(self, path_part=""):
        """Everything logged so far, in files whose path contains `path_part`."""
        self._open_new()
        with self.lock:
            texts = []
            for path, file in self.files.items():
                if path_part in path:
                    file.seek(0)
                    texts.append(file.read().decode(errors="replace"))
            return "".join(texts)

    def begin(self):
        self._open_new()
        self.allowed = []
        with self.lock:
            self.mark = {path: file.seek(0, 2) for path, file in self.files.items()}

    def allow(self, *patterns):
        self.allowed.extend(patterns)

    def bytes_since_begin(self):
        """What was logged since `begin`, by path."""
        self._open_new()
        with self.lock:
            logged = {}
            for path, file in self.files.items():
                file.seek(self.mark.get(path, 0))
                logged[path] = file.read()
            return logged

    def since_begin(self):
        logged = self.bytes_since_begin().items()
        return [(path, line) for path, text in logged for line in text.decode(errors="replace").splitlines()]

    def unexpected(self):
        allowed = [re.compile(it) for it in self.allowed]
        return [
            f"{path}: {line}"
            for path, line in self.since_begin()
            if (LEVEL.search(line) or PANIC.search(line)) and not any(it.search(line) for it in allowed)
        ]

    def check(self):
        unexpected = self.unexpected()
        assert not unexpected, "unexpected lines:\n" + "\n".join(unexpected[:40])

    def count(self, pattern):
        return len(re.findall(pattern, self.text()))

    def close(self):
        self.ended.set()
        self.thread.join(timeout=5)
        with self.lock:
            for path, file in self.files.items():
                KEPT.keep_log(path, file)
                file.close()
            self.files = {}
