"""The settings of a Spark session, and the configuration that follows from them."""

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.registry import scheme_of
from gobblin_assets.spark.s3 import S3_CAPABILITY, S3_COORDINATES, S3_UNNEEDED, plan_s3_conf

SPARK_VERSION: Final = version("pyspark")

COORDINATES: Final[Mapping[str, str]] = MappingProxyType(
    {
        # A connector need only be of Spark's minor line, 4.0.
        "avro": "org.apache.spark:spark-avro_2.13:4.0.2",
        "duckdb": "org.duckdb:duckdb_jdbc:2.0.0.1",
        "kafka": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",
        "mariadb": "org.mariadb.jdbc:mariadb-java-client:3.5.11",
        "mysql": "com.mysql:mysql-connector-j:9.7.0",
        "postgres": "org.postgresql:postgresql:42.7.8",
        S3_CAPABILITY: ",".join(S3_COORDINATES),
        "sqlite": "org.xerial:sqlite-jdbc:3.54.1.0",
    }
)
"""Maven coordinates by capability, with commas between several. A session's ``coordinates`` override them and add more.
"""

EXCLUSIONS: Final[Mapping[str, str]] = MappingProxyType({S3_CAPABILITY: S3_UNNEEDED})
"""By capability, what its coordinates name and don't need, as group:artifact. Overridden coordinates have none."""

CAPABILITY_BY_SCHEME: Final[Mapping[str, str]] = MappingProxyType({"s3": S3_CAPABILITY})
"""What Spark needs to read files at URIs of a scheme."""

CONF_VARIABLE: Final = "GOBBLIN_SPARK_CONF"
CONF_SEPARATOR: Final = "\n"
"""Between settings in the variable: a value may have anything else in it."""

WAIT_VARIABLE: Final = "GOBBLIN_SPARK_WAIT_S"
WAIT_S: Final = 600.0
"""How long a cluster may run none of a session's tasks, unless the variable says otherwise."""

SESSION_CONF: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.sql.session.timeZone": "UTC",
        # Spark's own default writes INT96, which has no statistics and which other readers no longer accept.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }
)
"""Fixed for every session, of either kind."""

SESSION_DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        # Spark's own default is none: then every row of a write is sorted by its directory. Rows and their few dead
        # letters need two directories. An open file holds up to 128 MiB, so there are no more than these.
        "spark.sql.maxConcurrentOutputFileWriters": "2",
        # Java never compiles a method of more bytes. If a stage has one (JSON of many fields), Spark then compiles each
        # step by itself, in small methods.
        "spark.sql.codegen.hugeMethodLimit": "8000",
    }
)
"""For every session, of either kind, where the user gives nothing else."""

_JAR_LISTS: Final = frozenset({"spark.jars", "spark.jars.packages", "spark.jars.excludes"})
_CONF_KEY: Final = re.compile(r"spark\.[\w.$-]+")
_NOT_CONF: Final = frozenset({"spark.master", "spark.remote"})
_JOINED: Final = _JAR_LISTS | {"spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"}
_PROPERTY: Final = re.compile(r"([^#!\s=:][^\s=:]*)(?:\s*[=:]\s*|\s+)(.+)")
_LOG_CONFIGURATION: Final = Path(__file__).with_name("log4j2.properties")
_COORDINATE: Final = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+")
_END_OF_HOST: Final = re.compile(r"[/;?#]")
_TOKEN: Final = re.compile(r"(\btoken=)[^\s;,'\"\])]+", re.IGNORECASE)
# Like Spark's own spark.redaction.regex, but a little wider.
_SECRET_KEY: Final = re.compile(r"secret|password|token|credential|access[.]?key", re.IGNORECASE)

_CORES_MAX: Final = "spark.cores.max"
_CORES_OF_TASK: Final = "spark.task.cpus"
_CORES_OF_EXECUTOR: Final = "spark.executor.cores"
_EXECUTORS: Final = "spark.executor.instances"
_EXECUTORS_MAX: Final = "spark.dynamicAllocation.maxExecutors"
_IS_DYNAMIC: Final = "spark.dynamicAllocation.enabled"


@dataclass(frozen=True, slots=True, repr=False)
class SparkSettings:
    """The settings of a session.

    ``work_folder`` takes the driver's logs and Spark's warehouse, so that nothing falls into the working directory.
    ``remote`` is a Spark Connect URL (``sc://host:port/;token=…``). Then the server's starter decides on ``master``,
    ``capabilities``, ``jars`` and settings in ``conf`` outside ``spark.sql.``. ``capabilities`` name entries of
    ``COORDINATES`` or ``coordinates``, or are Maven coordinates themselves. They are resolved from Maven when the JVM
    starts; a folder of ``jars`` is used instead of the resolver. ``hdfs_user``: as whom files of HDFS have to be read;
    None where there are none.
    """

    work_folder: Path
    master: str = "local[*]"
    remote: str | None = None
    app_name: str = "gobblin_assets"
    conf: Mapping[str, str] = field(default_factory=dict)
    capabilities: tuple[str, ...] = ()
    coordinates: Mapping[str, str] = field(default_factory=dict)
    jars: Path | None = None
    hdfs_user: str | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        """Without values of ``conf`` and the parameters of ``remote``: both may hold a secret."""
        where = f"remote={hide_parameters(self.remote)!r}" if self.remote else f"master={self.master!r}"
        return f"SparkSettings({where}, capabilities={self.capabilities!r}, conf={sorted(self.conf)!r})"


def read_wait_s(environment: Mapping[str, str]) -> float:
    """The seconds of ``WAIT_VARIABLE``, else ``WAIT_S``. RejectedError for what is no positive number."""
    text = environment.get(WAIT_VARIABLE)
    if not text:
        return WAIT_S
    try:
        wait_s = float(text)
    except ValueError:
        wait_s = 0.0
    if not 0 < wait_s < math.inf:
        raise RejectedError(
            f"expected a number of seconds above 0, found {text!r}",
            field=WAIT_VARIABLE,
            hint="Correct it, or unset it.",
        )
    return wait_s


def merge_jars(*confs: Mapping[str, str]) -> dict[str, str]:
    """One configuration from several: their lists of jars are joined; for every other key the last one counts."""
    merged: dict[str, str] = {}
    for conf in confs:
        for key, value in conf.items():
            listed = f"{merged[key]},{value}" if key in _JAR_LISTS and key in merged else value
            merged[key] = ",".join(dict.fromkeys(listed.split(","))) if key in _JAR_LISTS else value
    return merged


def parse_conf(lines: Iterable[str], *, field: str) -> dict[str, str]:
    """Spark's configuration by texts ``key=value``; blank ones are left out. RejectedError names one that is wrong."""
    conf: dict[str, str] = {}
    for line in filter(str.strip, lines):
        key, mark, value = line.strip().partition("=")
        if not (mark and _CONF_KEY.fullmatch(key)) or key in _NOT_CONF:
            raise RejectedError(
                f"expected spark.key=value, found {key!r}",
                field=field,
                hint="Write it like spark.cores.max=4. The master and the server have options of their own.",
            )
        if conf.setdefault(key, value) != value:
            raise RejectedError(f"{key} is given twice", field=field, hint="Leave one of them.")
    return conf


def plan_jars(packages: Iterable[str], jars: Iterable[str], *, field: str) -> dict[str, str]:
    """Spark's configuration for more jars: by Maven coordinates, and by paths. RejectedError names what is wrong."""
    coordinates, paths = list(dict.fromkeys(packages)), [str(Path(jar).expanduser().absolute()) for jar in jars]
    for coordinate in coordinates:
        if not _COORDINATE.fullmatch(coordinate):
            raise RejectedError(
                f"expected group:artifact:version, found {coordinate!r}",
                field=f"{field}.packages",
                hint=f"Write it like {COORDINATES['postgres']}; a file goes into jars.",
            )
    for path in paths:
        if "," in path or not Path(path).is_file():
            raise RejectedError(
                f"expected a jar without a comma in its path, found none at {path}",
                field=f"{field}.jars",
                hint="Give the path of the driver's jar; a Maven coordinate goes into packages.",
            )
    conf = {"spark.jars.packages": ",".join(coordinates), "spark.jars": ",".join(dict.fromkeys(paths))}
    return {key: value for key, value in conf.items() if value}


def list_place_capabilities(uris: Iterable[str]) -> list[str]:
    """The connectors that Spark needs to read files at these places, by the names of ``COORDINATES``."""
    found = (CAPABILITY_BY_SCHEME.get(scheme_of(uri)) for uri in uris)
    return sorted({name for name in found if name is not None})


def hide_parameters(remote: str) -> str:
    """A Connect URL's scheme, host and port: all else, also of a wrong one, may hold the token."""
    scheme, mark, rest = remote.rpartition("://")
    return scheme + mark + _END_OF_HOST.split(rest, maxsplit=1)[0].rpartition("@")[2]


def hide_tokens(text: str) -> str:
    """The text of a library without the tokens of Connect URLs."""
    return _TOKEN.sub(r"\1…", text)


def is_secret(key: str) -> bool:
    """Whether the value of this configuration key must not be seen by others on the machine."""
    return _SECRET_KEY.search(key) is not None


def plan_conf(settings: SparkSettings) -> dict[str, str]:
    """The whole configuration of a JVM of ours: the user's values over our defaults, then the values that we insist on.

    Looks into ``jars``, and into the environment for what S3 needs. RejectedError names the field of ``settings``, or
    the variable, that can't be used.
    """
    work_folder = settings.work_folder.absolute()
    # Of the site's values, those that ours are added to: Spark would take ours instead of them.
    joined = {key: value for key, value in read_site_conf(os.environ).items() if key in _JOINED}
    given = {**joined, **settings.conf}
    conf = {
        **SESSION_DEFAULTS,
        "spark.ui.enabled": "false",
        # Spark's own 10,000 lists 20,000 published files in as many tasks: 20 s on two cores, or 3 s with these.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
        "spark.sql.warehouse.dir": (work_folder / "warehouse").as_uri(),
        **(
            {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
            if is_local(settings.master)
            else {}
        ),
        **(plan_s3_conf(os.environ, settings.conf) if S3_CAPABILITY in settings.capabilities else {}),
        **settings.conf,
    }
    for key, value in SESSION_CONF.items():
        if conf.get(key, value) != value:
            raise RejectedError(
                f"expected {value!r}, found {conf[key]!r}",
                field=f"spark.conf.{key}",
                hint="Leave it out: positions and published files depend on it.",
            )
    java_options = (
        "-Duser.timezone=UTC",
        f'"-Dlog4j2.configurationFile={_LOG_CONFIGURATION.as_uri()}"',
        f'"-Dderby.stream.error.file={work_folder / "derby.log"}"',
    )
    conf |= {
        **SESSION_CONF,
        "spark.master": settings.master,
        "spark.app.name": settings.app_name,
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": _join(" ", *java_options, given.get("spark.driver.extraJavaOptions")),
        "spark.executor.extraJavaOptions": _join(" ", java_options[0], given.get("spark.executor.extraJavaOptions")),
    }
    return conf | _plan_jars(settings, given)


def is_local(master: str) -> bool:
    """Whether driver and executors run on this machine, in one JVM or (``local-cluster``) in several."""
    return master.startswith("local")


def read_site_conf(environment: Mapping[str, str]) -> dict[str, str]:
    """The site's spark-defaults.conf; empty if there is none. Spark takes a given value instead of it."""
    package = find_spec("pyspark")  # to import it takes long
    home = environment.get("SPARK_HOME") or str(Path(str(package.origin if package else "")).parent)
    path = Path(environment.get("SPARK_CONF_DIR") or f"{home}/conf", "spark-defaults.conf")
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").replace("\\\n", "").splitlines()
    except OSError:
        return {}
    found = (_PROPERTY.fullmatch(line.strip()) for line in lines)
    return {each[1]: each[2] for each in found if each is not None}


def _plan_jars(settings: SparkSettings, given: Mapping[str, str]) -> dict[str, str]:
    coordinates = [_get_coordinates(settings, name) for name in settings.capabilities]
    if settings.jars is None:
        built_in = [name for name in settings.capabilities if name not in settings.coordinates]
        unneeded = [EXCLUSIONS[name] for name in built_in if name in EXCLUSIONS]
        planned = {
            "spark.jars.packages": _join(",", given.get("spark.jars.packages"), *coordinates),
            "spark.jars.excludes": _join(",", given.get("spark.jars.excludes"), *unneeded),
        }
        return {key: value for key, value in planned.items() if value}
    jars = sorted(str(path) for path in settings.jars.absolute().glob("*.jar"))
    if not jars or any("," in jar for jar in jars):
        raise RejectedError(
            f"expected a folder with jars and no comma in its path, found {len(jars)} jars in {settings.jars}",
            field="spark.jars",
            hint=f"Put the jars of {', '.join(coordinates) or 'your connectors'} there.",
        )
    return {"spark.jars": _join(",", given.get("spark.jars"), *jars)}


def _get_coordinates(settings: SparkSettings, capability: str) -> str:
    known = {**COORDINATES, **settings.coordinates}
    found = known.get(capability, capability)
    if all(_COORDINATE.fullmatch(each) for each in found.split(",")):
        return found
    if capability not in known:
        raise RejectedError(
            f"expected one of {', '.join(sorted(known))}, or Maven's group:artifact:version; found {capability!r}",
            field="spark.capabilities",
            hint="Correct it, or give its Maven coordinate under spark.coordinates.",
        )
    raise RejectedError(
        f"expected group:artifact:version, found {found!r}",
        field=f"spark.coordinates.{capability}",
        hint=f"Write it like {COORDINATES['postgres']}.",
    )


def _join(separator: str, *parts: str | None) -> str:
    return separator.join(part for part in parts if part)


def count_conf_slots(master: str, conf: Mapping[str, str]) -> int | None:
    """The number of tasks that a cluster runs at once, as far as settings say: nothing is opened to learn it.

    None: Spark runs on this machine, or the settings don't say.
    """
    return None if is_local(master) else count_slots(master, conf.get)


def count_slots(master: str, find: Callable[[str], str | None]) -> int | None:
    """The slots by the settings that ``find`` finds; None: they don't say."""
    of_executor = _read_number(find(_CORES_OF_EXECUTOR))
    if of_executor is None and not master.startswith("spark://"):
        # Executors of a standalone master take all cores of their worker; others take one, if nobody says more.
        of_executor = 1
    is_dynamic = (find(_IS_DYNAMIC) or "").strip().lower() == "true"
    executors = _read_number(find(_EXECUTORS_MAX if is_dynamic else _EXECUTORS))
    limits = [_read_number(find(_CORES_MAX))]
    if of_executor is not None and executors is not None:
        limits.append(of_executor * executors)
    known = [limit for limit in limits if limit is not None]
    return max(1, min(known) // (_read_number(find(_CORES_OF_TASK)) or 1)) if known else None


def _read_number(text: str | None) -> int | None:
    """None also for what is no number of cores: Spark itself refuses it when it starts."""
    return int(text) if text is not None and text.strip().isdecimal() and int(text) > 0 else None
