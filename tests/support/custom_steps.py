"""A kind of step as a user adds one: it registers a table by making a directory of that name."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gobblin_assets.commit.steps import CommitStep, StepVerdict, StepWorld
from gobblin_assets.model.files import FileIdentity

KIND = "tests.register"


@dataclass(frozen=True, slots=True)
class Register:
    """``catalog`` is a directory; a table is registered when it holds a directory of the table's name."""

    catalog: str
    table: str

    @property
    def kind(self) -> str:
        return KIND

    @property
    def path(self) -> str:
        return f"{self.catalog}/{self.table}"

    def to_json(self) -> Mapping[str, object]:
        return {"catalog": self.catalog, "table": self.table}

    def verify(self, world: StepWorld) -> StepVerdict:
        return StepVerdict.DONE if world.fs.is_directory(self.path) else StepVerdict.DO

    def execute(self, world: StepWorld) -> None:
        world.fs.make_directories(self.path)

    def published_files(self) -> Iterable[tuple[str, FileIdentity, int]]:
        return ()

    def touched_directories(self) -> Iterable[str]:
        return (self.catalog,)


def read_register(data: Mapping[str, object]) -> CommitStep:
    return Register(str(data["catalog"]), str(data["table"]))
