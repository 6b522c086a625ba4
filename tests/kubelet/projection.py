"""The files of a volume, projected as a kubelet does: links to a folder that is replaced as a whole.

`NAME` is a link to `..data/NAME`, and `..data` a link to the folder of the current version. A new version is written beside the
old one; then `..data` is replaced by one rename, so a reader sees all files of one version or all of the other.
"""

import itertools
import os
import shutil

DATA = "..data"
numbers = itertools.count()


def project(folder, files, group=None):
    """Replaces the files of a volume: path → (content, mode). They belong to root and, if there is one, to the group."""
    version = folder / f"..{next(numbers)}"
    for path, (content, mode) in files.items():
        file = version / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        file.chmod(mode)
        if group is not None:
            os.chown(file, 0, group)
    version.mkdir(exist_ok=True)
    version.chmod(0o755)
    data, new = folder / DATA, folder / f"{DATA}_tmp"
    old = folder / data.readlink() if data.is_symlink() else None
    new.symlink_to(version.name)
    new.rename(data)
    names = {path.split("/")[0] for path in files}
    for name in names:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"{DATA}/{name}")
    for link in folder.iterdir():
        if link.is_symlink() and link.name != DATA and link.name not in names:
            link.unlink()
    if old is not None:
        shutil.rmtree(old)
