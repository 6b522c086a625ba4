"""The files of a failed test: copied to the folder that `tests/run` keeps, before the installation is closed."""

import contextlib
import os
import pathlib
import shutil

LARGEST_FILE = 16 << 20


def keep(folder, name):
    """Copies what is below the folder to a folder of that name; nothing without `EH_TEST_FAILED`."""
    kept = os.environ.get("EH_TEST_FAILED")
    if not kept:
        return
    # An installation that runs may remove files and folders at any moment: `walk` leaves out what is gone.
    for parent, _, files in os.walk(folder):
        for path in (pathlib.Path(parent, it) for it in files):
            with contextlib.suppress(OSError):
                if path.is_file() and not path.is_symlink() and path.stat().st_size <= LARGEST_FILE:
                    target = pathlib.Path(kept, name.replace("/", "_"), path.relative_to(folder))
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, target)
