"""Images of one layer, as the archives that `docker save` writes: the same bytes for the same contents."""
import hashlib
import io
import json
import os
import pathlib
import platform
import re
import subprocess
import tarfile

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class Layer:
    """Files of an image, by paths without a leading slash. Folders above them are made when missing."""

    def __init__(self):
        self.bytes, self.folders = io.BytesIO(), set()
        self.tar = tarfile.open(fileobj=self.bytes, mode="w", format=tarfile.GNU_FORMAT)

    def _add(self, path, data=None, **what):
        entry = tarfile.TarInfo(path)
        for key, value in what.items():
            setattr(entry, key, value)
        self.tar.addfile(entry, data)

    def folder(self, path, mode=0o755, owner=0):
        if path in ("", ".") or path in self.folders:
            return
        self.folder(os.path.dirname(path))
        self.folders.add(path)
        self._add(path, type=tarfile.DIRTYPE, mode=mode, uid=owner, gid=owner)

    def _file(self, path, data, mode):
        self.folder(os.path.dirname(path))
        self._add(path, io.BytesIO(data), size=len(data), mode=mode)

    def file(self, path, source):
        """A copy of the file `source`, links followed, executable."""
        self._file(path, pathlib.Path(source).read_bytes(), 0o755)

    def text(self, path, text):
        self._file(path, text.encode(), 0o644)

    def link(self, path, target):
        """A symbolic link."""
        self.folder(os.path.dirname(path))
        self._add(path, type=tarfile.SYMTYPE, linkname=target, mode=0o777)

    def finish(self):
        self.tar.close()
        return self.bytes.getvalue()


def stripped(binary, folder):
    """A copy of the program in `folder`, without what only a debugger reads."""
    copy = pathlib.Path(folder) / binary.name
    subprocess.run(["strip", "-o", copy, binary], check=True)
    return copy


def libraries(binary):
    """(file, path in the image) of the loader and of each library a program is linked with; nothing for a static one.

    Raises ValueError when one of them is missing here.
    """
    listed = subprocess.run(["ldd", binary], capture_output=True, text=True)
    if listed.returncode != 0 and "not a dynamic executable" in listed.stderr:
        return []
    listed.check_returncode()
    found = []
    for line in listed.stdout.splitlines():
        if "not found" in line:
            raise ValueError(f"{binary}: {line.strip()}")
        if path := re.search(r"(?:=> |^\s*)(/\S+) \(0x", line):
            found.append((path.group(1), path.group(1).lstrip("/")))
    return found


def write(out, reference, layer, configuration):
    """Writes the archive of an image with this one layer; the layer's size in bytes."""
    data = layer.finish()
    image = json.dumps({
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()), "os": "linux", "config": configuration,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(data).hexdigest()}"]},
        "history": [{"created_by": "scripts/images"}],
    }, sort_keys=True).encode()
    image_name = f"{hashlib.sha256(image).hexdigest()}.json"
    manifest = json.dumps([{"Config": image_name, "RepoTags": [reference], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as archive:
        for name, part in ((image_name, image), ("layer.tar", data), ("manifest.json", manifest)):
            entry = tarfile.TarInfo(name)
            entry.size = len(part)
            archive.addfile(entry, io.BytesIO(part))
    return len(data)
