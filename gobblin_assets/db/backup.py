"""Makes backups of the embedded Postgres, and new homes from backups.

A backup is a physical copy (``pg_basebackup``), not a dump: the commit log, Dagster's storage and the roles belong to
one cluster, and only a physical copy holds all of them as of one instant. It is taken while the server works, is
checked against its manifest, and starts without further steps.

    <target>/data      the cluster, with the log it needs to become consistent
    <target>/pgpass    its password; the whole folder has mode 0700
"""

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

from gobblin_assets.db.account import find_account
from gobblin_assets.db.cluster import (
    SUPERUSER,
    ClusterFiles,
    adopt_tree,
    get_binary,
    new_directory_beside,
    sync_folder,
    write_private,
)
from gobblin_assets.db.embedded import Say, files_of, hold_start_lock, require_stopped, start
from gobblin_assets.errors import CorruptionError, RejectedError, RetryableError

BACKUP_WAIT_S_MAX = 24 * 3600

_MANIFEST_DIGEST = "sha256"


def backup(home: Path, target_directory: Path, say: Say) -> None:
    """Copy the cluster of ``home`` into a new directory, starting the server if it is stopped.

    The directory appears whole or not at all.

    Raises:
        RejectedError: ``target_directory`` exists.
        RetryableError: the copy failed (a full disk, a server that went away); nothing is left of it.
        CorruptionError: the copy does not match its manifest.

    """
    target = target_directory.expanduser().absolute()
    if target.exists():
        raise RejectedError(f"{str(target)!r} exists.", field="target_directory", hint="Name a new directory.")
    server = start(home, say)
    unfinished = target.with_name(f"{target.name}.unfinished-{os.getpid()}")
    unfinished.mkdir(parents=True, mode=0o700)
    try:
        say(f"Copying {server.data_directory} to {target}.")
        copied = _run(
            get_binary("pg_basebackup"),
            f"--pgdata={unfinished / 'data'}",
            f"--host={server.socket_directory}",
            f"--port={server.port}",
            f"--username={SUPERUSER}",
            "--no-password",
            "--format=plain",
            "--wal-method=stream",
            "--checkpoint=fast",
            f"--manifest-checksums={_MANIFEST_DIGEST.upper()}",
            password_file=server.password_file,
        )
        if copied.returncode != 0:
            raise RetryableError(
                f"pg_basebackup failed: {copied.stdout.strip()}", hint="Correct the cause and back up again."
            )
        _check_manifest(unfinished / "data")
        write_private(unfinished / "pgpass", server.password_file.read_text(encoding="utf-8"))
        unfinished.rename(target)
        sync_folder(target.parent)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _check_manifest(data: Path) -> None:
    # The wheel's own pg_verifybackup dies of a segmentation fault, so the manifest is compared here.
    entries = json.loads((data / "backup_manifest").read_text(encoding="utf-8"))["Files"]
    for entry in entries:
        # A name that is not UTF-8 comes as hexadecimal bytes.
        encoded = entry.get("Encoded-Path")
        path = data / (os.fsdecode(bytes.fromhex(encoded)) if encoded else entry["Path"])
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, _MANIFEST_DIGEST).hexdigest()
        if digest != entry["Checksum"]:
            raise CorruptionError(
                f"{path.name!r} of the copy in {str(data.parent)!r} does not match the manifest.",
                hint="Check the disk first, then back up to another disk.",
                path=str(path),
            )


def restore(home: Path, backup_directory: Path, say: Say) -> None:
    """Make the cluster of a home without a cluster from a backup. The server is not started.

    Raises:
        RejectedError: the home has a cluster, or the directory is no backup.

    """
    source = backup_directory.expanduser().absolute()
    if not (source / "data" / "PG_VERSION").is_file() or not (source / "pgpass").is_file():
        raise RejectedError(
            f"{str(source)!r} is no backup: data/PG_VERSION or pgpass is missing.",
            field="backup_directory",
            hint="Name a directory that `gobblin-assets db backup` made.",
        )
    files = files_of(home)
    with hold_start_lock(files, say):
        require_stopped(files)
        if files.data.exists():
            raise RejectedError(
                f"{str(files.data)!r} exists.",
                field="home",
                hint="Move it away first, or set GOBBLIN_HOME to another folder.",
            )
        _copy_into_place(files, source)


def _copy_into_place(files: ClusterFiles, source: Path) -> None:
    unfinished = new_directory_beside(files)
    try:
        shutil.copytree(source / "data", unfinished, symlinks=True, dirs_exist_ok=True)
        adopt_tree(unfinished, find_account(files.data))
        _sync_tree(unfinished)
        write_private(files.password_file, (source / "pgpass").read_text(encoding="utf-8"))
        unfinished.rename(files.data)
        sync_folder(files.root)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _sync_tree(directory: Path) -> None:
    for folder, _, names in os.walk(directory):
        for name in names:
            descriptor = os.open(Path(folder, name), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_folder(Path(folder))


def _run(*command: str | Path, password_file: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603  a program of the wheel with arguments of ours, no shell
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        env={"PATH": os.defpath, "LC_ALL": "C", "PGPASSFILE": str(password_file)},
        check=False,
        text=True,
        timeout=BACKUP_WAIT_S_MAX,
    )
