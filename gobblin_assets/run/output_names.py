"""The names at which outputs will stand, for workers that are told before they write."""

from typing import Protocol

from gobblin_assets.model.urn import Role


class OutputNames(Protocol):
    """The directories of outputs: a value that can be pickled, for workers that write in other processes."""

    @property
    def foresees_etags(self) -> bool:
        """Whether the ETag of an object is known before it is there (``fs.objects.HoldsObjects``)."""
        ...

    def directory_of(self, role: Role, partition_path: str) -> str:
        """The full path of the directory, which no other sequence ever gets."""
        ...
