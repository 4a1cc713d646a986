"""A disk that knows what it would still have after a power cut.

Bytes of a file are safe once the file was synced, names once their directory was. Of the rest, a
cut keeps any sectors of any writes, and of each directory's changes the first ones, as file systems
with a journal do. Directories themselves are always kept.
"""

from __future__ import annotations

from pathlib import Path

from gimbalmq.broker.store.files import Disk

SECTOR_BYTES = 512


class Content:
    """The bytes of one file: those that are safe, and what was done to it since."""

    def __init__(self):
        self.safe = b""
        self.pending = []

    def after_a_cut(self, keep):
        """The bytes that are left; `keep()` is asked for each change, a sector at a time."""
        data = bytearray(self.safe)
        for change in self.pending:
            match change:
                case int(size):
                    if keep():
                        del data[size:]
                        data.extend(bytes(size - len(data)))
                case (at, written):
                    for start, part in sectors(at, written):
                        if keep():
                            data.extend(bytes(max(start + len(part) - len(data), 0)))
                            data[start : start + len(part)] = part
        return bytes(data)


def sectors(at, data):
    """(place, bytes) of the parts of a write that fall into different sectors."""
    done = 0
    while done < len(data):
        start = at + done
        size = min(SECTOR_BYTES - start % SECTOR_BYTES, len(data) - done)
        yield start, data[done : done + size]
        done += size


class PoweredDisk(Disk):
    """Does everything for real, and keeps account of what is safe."""

    __slots__ = ("directory", "live", "pending", "safe")

    def __init__(self, directory):
        self.directory = directory
        #: Contents by path, as they are now and as a cut would leave the names.
        self.live = {}
        self.safe = {}
        #: By directory: (path, content or None) of the names that changed since it was synced.
        self.pending = {}
        for path in directory.rglob("*"):
            if path.is_file() and path.name != "lock":
                content = self.live[path] = self.safe[path] = Content()
                content.safe = path.read_bytes()

    def _rename(self, path, content):
        if content is None:
            self.live.pop(path, None)
        else:
            self.live[path] = content
        self.pending.setdefault(path.parent, []).append((path, content))

    def _content(self, descriptor):
        return self.live.get(Path(f"/proc/self/fd/{descriptor}").readlink())

    def open(self, path):
        if path not in self.live:
            self._rename(path, Content())
        return super().open(path)

    def write_at(self, descriptor, data, at):
        self._content(descriptor).pending.append((at, bytes(data)))
        super().write_at(descriptor, data, at)

    def resize(self, descriptor, size):
        self._content(descriptor).pending.append(size)
        super().resize(descriptor, size)

    def sync(self, descriptor):
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        content = self.live.get(path)
        if content is not None:
            content.safe = content.after_a_cut(lambda: True)
            content.pending.clear()
        for changed, now in self.pending.pop(path, ()):
            self._keep(changed, now)
        if path.is_dir():
            self._forget_directories(path)
        super().sync(descriptor)

    def _forget_directories(self, path):
        """The names of directories that were removed are gone, and all in them."""
        for one in [*self.safe, *self.live]:
            if path in one.parents and not one.parent.exists():
                self.safe.pop(one, None)
                self.live.pop(one, None)
                self.pending.pop(one.parent, None)

    def _keep(self, path, content):
        if content is None:
            self.safe.pop(path, None)
        else:
            self.safe[path] = content

    def replace(self, source, target):
        content = self.live.get(source)
        super().replace(source, target)
        # Both names in one step, as a rename is.
        self.pending.setdefault(target.parent, []).append((source, None))
        self.live.pop(source)
        self._rename(target, content)

    def remove(self, path):
        super().remove(path)
        if path in self.live:
            self._rename(path, None)

    def cut_power(self, chance):
        """Leave on disk what a power cut would, by a random generator."""
        for path in [path for path in self.live if not path.exists()]:
            self._rename(path, None)  # removed with its directory
        for changes in self.pending.values():
            for changed, content in changes[: chance.randint(0, len(changes))]:
                self._keep(changed, content)
        for path in self.live:
            path.unlink()
        share = chance.choice((0.0, 0.3, 0.9, 1.0))
        for path, content in self.safe.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.after_a_cut(lambda: chance.random() < share))
