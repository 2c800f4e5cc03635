"""What is kept of a run's folder: what the programs said, never their stores, which are large."""
import os
import pathlib
import shutil

# Folders of stores: Waybill's, and Apache's broker's.
STORES = ("data", "store")
ENDINGS = (".log", ".err", ".yaml", ".json", ".conf")


def keep(folder, kept):
    """Copies what the programs in `folder` said to `kept`, in place of what is there. A full disk is told, and ends nothing."""
    shutil.rmtree(kept, ignore_errors=True)
    try:
        for parent, names, files in os.walk(folder):
            names[:] = [name for name in names if name not in STORES]
            for file in files:
                if file.endswith(ENDINGS):
                    target = kept / pathlib.Path(parent).relative_to(folder) / file
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(pathlib.Path(parent, file), target)
        print(f"the logs are in {kept}", flush=True)
    except OSError as e:
        print(f"not all logs could be kept in {kept}: {e}", flush=True)


def drop_stores(folder):
    """Removes the stores of programs that have ended, so that a long run does not fill the disk."""
    for parent, names, _ in os.walk(folder):
        for name in set(names).intersection(STORES):
            shutil.rmtree(pathlib.Path(parent, name), ignore_errors=True)
            names.remove(name)
