"""Images that only the tests need: `pause`, which holds a pod's namespaces, and `client`, in whose pods the machine's own files are mounted.

`images.py FOLDER` writes the archives.
"""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import layers  # noqa: E402

PAUSE, CLIENT = "waybill-e2e/pause:1", "waybill-e2e/client:1"


def pause(folder):
    layer = layers.Layer()
    layer.file("pause", ROOT / ".cache" / "e2e" / "bin" / "pause")
    layers.write(folder / "pause.tar", PAUSE, layer, {"Entrypoint": ["/pause"]})


def client(folder):
    """Where /usr and the like are mounted; the published clients are installed on the machine, once, and not in an image."""
    layer = layers.Layer()
    for name in ("bin", "sbin", "lib", "lib64"):
        layer.link(name, f"usr/{name}")
    layer.folder("usr")
    layer.folder("tmp", mode=0o1777)
    layer.text("etc/passwd", "root:x:0:0::/tmp:/bin/sh\n")
    layer.text("etc/nsswitch.conf", "hosts: files dns\n")
    layers.write(folder / "client.tar", CLIENT, layer, {"Cmd": ["/bin/sh"], "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/tmp"]})


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1])
    pause(target)
    client(target)
