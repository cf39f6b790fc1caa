import pytest

from gobblin_assets.fs.port import FileSystem
from tests.support.file_systems import ADAPTERS


@pytest.fixture(params=ADAPTERS)
def adapter(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def fs(adapter: str) -> FileSystem:
    return ADAPTERS[adapter](None)
