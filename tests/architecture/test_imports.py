"""The arrows between the folders hold, and the rules that say so catch what they should."""

import pytest

from tests.architecture.imports import ARROWS, against_the_arrows, bare_imports, foreign_to_the_core
from tests.architecture.sources import EVERYWHERE, FOLDERS, Source, sources


def test_every_folder_has_its_arrows_and_is_looked_at() -> None:
    assert set(ARROWS) == set(FOLDERS)
    assert {source.folder for source in sources(*FOLDERS)} == set(FOLDERS)


def test_every_import_follows_the_arrows() -> None:
    assert [line for source in sources(*FOLDERS) for line in against_the_arrows(source)] == []


def test_nobody_imports_a_folder_by_its_bare_name() -> None:
    assert [line for source in sources(*EVERYWHERE) for line in bare_imports(source)] == []


def test_the_core_imports_only_pure_modules_and_its_few_libraries() -> None:
    assert [line for source in sources("core") for line in foreign_to_the_core(source)] == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("core/step.py", "from dovetail.runtime.broker import Broker"),
        ("core/step.py", "import dovetail.sim"),
        ("core/step.py", "import dovetail"),
        ("core/step.py", "from dovetail import connect"),
        ("core/step.py", "from ..runtime import broker"),
        ("core/step.py", "from tests.builders import a_topic"),
        ("core/__init__.py", "from .. import runtime"),
        ("core/step.py", "def f():\n    import dovetail.runtime"),
        ("core/step.py", "if TYPE_CHECKING:\n    from dovetail.spec import Model"),
        ("runtime/broker.py", "from dovetail.sim.disk import Disk"),
        ("runtime/broker.py", "from dovetail import __version__"),
        ("sim/world.py", "from dovetail.runtime.broker import Broker"),
        ("sim/world.py", "from dovetail.runtime import tcp"),
        ("sim/world.py", "from dovetail import runtime"),
        ("sim/world.py", "from dovetail.runtime import storage, tcp"),
        ("sim/world.py", "import dovetail.runtime.storage_tools"),
        ("sim/world.py", "import_module('dovetail.runtime.tcp')"),
        ("spec/model.py", "from dovetail.core import ids"),
        ("proofs/floors.py", "from dovetail.sim import trace"),
        ("reports/audit.py", "from dovetail.core import ids"),
        ("reports/audit.py", "from dovetail.runtime.http import app"),
    ],
)
def test_an_import_against_the_arrows_is_caught(path: str, text: str) -> None:
    assert against_the_arrows(Source(path, text)) != []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("core/step.py", "from dovetail.core.ids import Offset\nfrom . import state\nfrom .ids import Lsn"),
        ("core/__init__.py", "from . import state"),
        ("runtime/storage/log.py", "from dovetail.core import batch\nfrom ..config import Config"),
        ("sim/world.py", "from dovetail.runtime.storage.log import Log\nfrom dovetail.core import step"),
        ("sim/world.py", "from dovetail.runtime import storage"),
        ("reports/audit.py", "from dovetail.sim import trace\nfrom dovetail.runtime.client import connect"),
        ("dovetail/cli.py", "from dovetail.runtime import broker\nfrom dovetail.sim import run"),
        ("tests/core/test_step.py", "from dovetail.core import step\nfrom dovetail.spec import model"),
    ],
)
def test_an_import_along_the_arrows_is_fine(path: str, text: str) -> None:
    assert against_the_arrows(Source(path, text)) == []


@pytest.mark.parametrize(
    "text", ["import core", "from core.ids import Offset", "import runtime.storage", "from sim import run"]
)
@pytest.mark.parametrize("path", ["core/step.py", "dovetail/cli.py", "tests/core/test_step.py", "examples/a.py"])
def test_a_bare_import_is_caught_everywhere(path: str, text: str) -> None:
    assert bare_imports(Source(path, text)) != []


@pytest.mark.parametrize("text", ["import dovetail.core", "from . import core", "from tests.core import builders"])
def test_an_import_by_its_full_name_is_not_bare(text: str) -> None:
    assert bare_imports(Source("tests/test_a.py", text)) == []


@pytest.mark.parametrize(
    "name",
    """
    time random os os.path socket asyncio threading logging datetime uuid secrets pathlib io sys subprocess
    multiprocessing concurrent.futures aiohttp structlog simpy numpy
    """.split(),
)
def test_an_impure_or_foreign_import_of_the_core_is_caught(name: str) -> None:
    assert foreign_to_the_core(Source("core/step.py", f"import {name}")) != []
    assert foreign_to_the_core(Source("core/step.py", f"def f():\n    from {name} import x")) != []


@pytest.mark.parametrize("name", "immutables msgspec crc32c struct enum typing collections.abc dovetail.core".split())
def test_a_pure_import_of_the_core_is_fine(name: str) -> None:
    assert foreign_to_the_core(Source("core/step.py", f"from {name} import x")) == []
