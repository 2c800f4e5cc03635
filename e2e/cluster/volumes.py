"""Makes a volume for each claim of the storage classes of config/storage.yaml, and removes those whose claim is gone. A process of the node.

Argument: the folder of the certificates. Volumes are folders beside it, in `volumes`.
"""
import pathlib
import shutil
import sys
import time

from kube import Api, ApiError, quantity

PROVISIONER, CLASSES = "waybill.dev/e2e", ("local", "growing", "anywhere")
CHOSEN = "volume.kubernetes.io/selected-node"
PAUSE_S = 0.3


def make(api, folder, claim):
    """A volume for the claim and no other; it is on the node that the scheduler has chosen, if the class lets it choose."""
    meta = claim["metadata"]
    name = f"pvc-{meta['uid']}"
    node = meta.get("annotations", {}).get(CHOSEN, "node1")
    (folder / name).mkdir(exist_ok=True)
    api.create("persistentvolumes", None, {
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
        "spec": {
            "storageClassName": claim["spec"]["storageClassName"], "accessModes": claim["spec"]["accessModes"], "persistentVolumeReclaimPolicy": "Delete",
            "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
            # Of this kind, because the kubelet gives its files to the pod's group.
            "local": {"path": str(folder / name)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]}},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]},
        },
    })


def grow(api, claim):
    """Says that the volume has the size that is asked for: folders have none."""
    meta, size = claim["metadata"], {"storage": claim["spec"]["resources"]["requests"]["storage"]}
    api.patch("persistentvolumes", None, claim["spec"]["volumeName"], {"spec": {"capacity": size}})
    api.patch("persistentvolumeclaims", meta["namespace"], meta["name"], {"status": {"capacity": size}}, part="status")


def is_small(claim):
    """Whether the volume is smaller than the claim asks for now."""
    has = claim["status"].get("capacity", {}).get("storage")
    return claim["status"].get("phase") == "Bound" and has and quantity(has) < quantity(claim["spec"]["resources"]["requests"]["storage"])


def remove(api, volume):
    """The volume and its data."""
    api.delete("persistentvolumes", None, volume["metadata"]["name"])
    shutil.rmtree(volume["spec"]["local"]["path"], ignore_errors=True)


def look(api, folder):
    """One round over everything."""
    for claim in api.list("persistentvolumeclaims"):
        if claim["spec"].get("storageClassName") not in CLASSES:
            continue
        if is_small(claim):
            grow(api, claim)
        waits = claim["spec"]["storageClassName"] == "anywhere" and CHOSEN not in claim["metadata"].get("annotations", {})
        if claim["status"].get("phase") == "Pending" and not waits:
            try:
                make(api, folder, claim)
            except ApiError as e:
                if e.code != 409:  # made in an earlier round, and not bound yet
                    raise
    for volume in api.list("persistentvolumes"):
        released = volume["status"].get("phase") in ("Released", "Failed")
        if released and volume["spec"].get("storageClassName") in CLASSES and volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete":
            remove(api, volume)


def main():
    certificates = pathlib.Path(sys.argv[1])
    api, folder = Api(certificates), certificates.parent / "volumes"
    while True:
        try:
            look(api, folder)
        except (ApiError, OSError) as e:
            print(f"{time.strftime('%T')} {e}", flush=True)
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    main()
