"""The decorator for functions that run a job's assets, and the specs of these assets."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, get_type_hints

import dagster as dg
from dagster._core.definitions.resource_annotation import get_resource_args

from gobblin_assets.dagster.environment import layout_from_environment
from gobblin_assets.dagster.job_assets import build_gobblin_assets
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.naming import GobblinTranslator
from gobblin_assets.dagster.own_runs import GobblinResource, begin_own_run, read_resources
from gobblin_assets.dagster.run_config import GobblinRunConfig
from gobblin_assets.errors import RejectedError
from gobblin_assets.spec.job_files import AnyJob, load_job

_CONTEXT: Final = "context"
_CONFIG: Final = "config"
_EXAMPLE: Final = "Write it like: def shop(context: dg.AssetExecutionContext, gobblin: GobblinResource)."


def build_asset_specs(job: AnyJob, *, translator: GobblinTranslator | None = None) -> list[dg.AssetSpec]:
    """The spec of each dataset and role of the job, as its assets have them; nothing connects.

    ``job``: of any kind, its options or the path of its file. RejectedError names the field.
    """
    return list(layout_from_environment(load_job(job), translator=translator).specs.values())


def gobblin_assets(
    *,
    job: AnyJob,
    translator: GobblinTranslator | None = None,
    op_tags: Mapping[str, str] | None = None,
    pool: str | None = None,
    retry_policy: dg.RetryPolicy | None = None,
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Makes the assets of a job of a function that runs them by ``GobblinResource.run``.

    The function takes ``context``, a ``GobblinResource``, other resources and, if it has options of its own, ``config``
    of a subclass of ``GobblinRunConfig``. Assets, checks, partitions and the op are those that ``build_definitions``
    makes of the job; hand the decorated function over to it in the job's place, for the sensors and jobs beside the
    assets. ``translator``: for other keys, groups and tags. RejectedError names the job's field, or the function's.

    ``op_tags``, ``pool`` and ``retry_policy`` are those of Dagster's ``multi_asset``. The policy is for what the
    function itself raises: a job's own errors ask for a retry where one can help, and for none elsewhere.
    """
    layout = layout_from_environment(load_job(job), translator=translator)
    if not layout.specs:
        raise RejectedError(
            f"the job {layout.job.job!r} has no datasets yet, and a function needs assets",
            field="job",
            hint="Give the job to build_definitions, which makes assets once it finds datasets.",
        )

    def decorate(function: Callable[..., Any]) -> dg.AssetsDefinition:
        own = _OwnFunction.of(function)
        return build_gobblin_assets(
            layout,
            own.run,
            description=inspect.getdoc(function),
            config_class=own.config_class,
            resource_keys=own.resource_keys,
            op_tags=op_tags,
            pool=pool,
            retry_policy=retry_policy,
        )

    return decorate


@dataclass(frozen=True, slots=True)
class _OwnFunction:
    """A function of the user's, and what it takes."""

    function: Callable[..., Any]
    resource_keys: tuple[str, ...]
    config_class: type[GobblinRunConfig]
    takes_config: bool

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "_OwnFunction":
        """RejectedError for a function that can't be called, or that takes something else."""
        _require_function(function)
        names = list(inspect.signature(function).parameters)
        resources = tuple(each.name for each in get_resource_args(function))
        hints = get_type_hints(function)
        unknown = [name for name in names if name not in {_CONTEXT, _CONFIG, *resources}]
        if unknown or _CONTEXT not in names:
            found = f"found {', '.join(unknown)}" if unknown else f"found no {_CONTEXT}"
            raise RejectedError(
                f"expected the parameters {_CONTEXT}, {_CONFIG} and resources by their annotations, {found}",
                field=function.__name__,
                hint=_EXAMPLE,
            )
        if not any(_is_kind(hints.get(name), GobblinResource) for name in resources):
            raise RejectedError(
                "expected a parameter that is a GobblinResource, found none", field=function.__name__, hint=_EXAMPLE
            )
        config = hints.get(_CONFIG, GobblinRunConfig)
        if not _is_kind(config, GobblinRunConfig):
            raise RejectedError(
                f"expected GobblinRunConfig or a subclass of it, found {config!r}",
                field=f"{function.__name__}.{_CONFIG}",
                hint="Let your class of options inherit from GobblinRunConfig, which has those of the run.",
            )
        return cls(function, resources, config, _CONFIG in names)

    def run(self, context: dg.AssetExecutionContext, layout: JobLayout, config: GobblinRunConfig) -> Iterator[Any]:
        own = begin_own_run(context, layout, config)
        given = self.function(
            **{_CONTEXT: context},
            **({_CONFIG: config} if self.takes_config else {}),
            **read_resources(context, self.resource_keys),
        )
        if given is not None and not isinstance(given, Iterator):
            raise RejectedError(
                f"expected a generator, an iterator or None, found a value of the type {type(given).__name__}",
                field=self.function.__name__,
                hint="Write `yield from gobblin.run(context)`.",
            )
        yield from own.leave_out_reported(given or iter(()))


def _require_function(function: object) -> None:
    if (
        not inspect.isfunction(function)
        or inspect.iscoroutinefunction(function)
        or inspect.isasyncgenfunction(function)
    ):
        raise RejectedError(
            f"expected a function without async, found {function!r}", field="@gobblin_assets", hint=_EXAMPLE
        )


def _is_kind(annotation: object, wanted: type[object]) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, wanted)
