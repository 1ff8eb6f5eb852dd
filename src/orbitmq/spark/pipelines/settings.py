"""Settings of pipelines: one declaration, a struct for each pipeline, for every place where they are given.

    @dataclass(frozen=True, kw_only=True)
    class ArchiveSettings:
        to: Annotated[str, Setting("Directory or URL.", metavar="URL")]
        since_ms: Annotated[int | None, Setting("Since when.", kind=Kind.INSTANT)] = None

    @pipeline(ArchiveSettings)
    def archive(spark: SparkSession, *, settings: ArchiveSettings, run: Run = ALONE) -> Summary: ...

    archive(spark, to="/data/archive")

Callers in Python give settings as keywords. `since_ms` is `--since` on the command line and `since` in a file of pipelines, where a bare
word, a unit or a date stands for what the pipeline takes as milliseconds.

Rules of this file
1. A setting is a text, a whole number, a number, a truth value, a StrEnum, several texts (`Sequence[str]`) or named texts
   (`Mapping[str, str]`), each also with None for "not given".
2. What is given is checked here, whoever gives it: an unknown name lists the known ones, and bounds name the setting.
3. A struct is read without importing Spark: its types must exist when its module runs.
"""

from __future__ import annotations

import datetime
import functools
import inspect
import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from enum import Enum, StrEnum
from typing import Annotated, Any, Final, Protocol, Union, cast, get_args, get_origin, get_type_hints

from orbitmq.client.connect_settings import MEANINGS, ConnectSettings
from orbitmq.clock import SystemClock
from orbitmq.errors import ConfigurationError
from orbitmq.instants import parse_due_ms, parse_instant_ms, parse_span_ms
from orbitmq.instants import span as span_of
from orbitmq.limits.spark import PIPELINE_INSTANT_MS_MAX, PIPELINE_SPAN_MS_MAX
from orbitmq.nearest import nearest
from orbitmq.spark.pipelines.run import Summary
from orbitmq.spark.workers import ready_workers

_CLOCK: Final = SystemClock()


class TimeKind(Enum):
    """What a number of milliseconds stands for, which decides how people write it."""

    PLAIN = "plain"
    INSTANT = "instant"
    """`2024-05-01T12:00:00Z`, milliseconds since the epoch, `now`, or a span: so long ago. The field's name ends in `_ms`."""
    DUE = "due"
    """As INSTANT, but a span is from now on."""
    SPAN = "span"
    """`500ms`, `30s`, `10m`, `2h`, `7d`. The field's name ends in `_ms`."""


@dataclass(frozen=True)
class Setting:
    """What the type of a field cannot say. help: one or two sentences, for `--help` and the reference page."""

    help: str
    metavar: str = ""
    kind: TimeKind = TimeKind.PLAIN
    minimum: int | float | None = None
    maximum: int | float | None = None
    replaces_cluster: bool = False
    """Where it is given no cluster may be asked: the command fills in no name server, and a default of a file does not count."""


class Form(Enum):
    """How values are put together."""

    ONE = "one"
    SEVERAL = "several"
    NAMED = "named"


@dataclass(frozen=True)
class NamedSetting:
    """A setting as everybody but the pipeline itself sees it."""

    parameter: str
    """Name in Python."""
    name: str
    """Name on the command line and in files: `rows-per-file`."""
    type: type
    """str, int, float, bool or a StrEnum; of one value where there may be several."""
    form: Form
    required: bool
    default: Any
    setting: Setting

    @property
    def metavar(self) -> str:
        if self.setting.metavar:
            return self.setting.metavar
        if self.setting.kind is TimeKind.SPAN:
            return "SPAN"
        if self.setting.kind in (TimeKind.INSTANT, TimeKind.DUE):
            return "TIME"
        if self.form is Form.NAMED:
            return "NAME=TEXT"
        return {str: "TEXT", int: "NUMBER", float: "NUMBER", bool: ""}.get(self.type, "|".join(self.choices))

    @property
    def choices(self) -> tuple[str, ...]:
        return tuple(member.value for member in self.type) if issubclass(self.type, StrEnum) else ()


NameServerSetting = Annotated[
    str | None, Setting("Name servers of the cluster, `;` between several.", metavar="HOST:PORT")
]
"""The cluster that a pipeline reads from or writes to. The command fills it in from its context."""


def _meant(name: str) -> Setting:
    value, meaning = MEANINGS[name]
    return Setting(meaning, metavar=value)


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """How a pipeline connects to its clusters: the settings of `ConnectSettings`. Files and commands are those of every machine that
    takes part; the command fills them in from its context."""

    access_key: Annotated[str | None, _meant("access_key")] = None
    secret_file: Annotated[str | None, _meant("secret_file")] = None
    secret_command: Annotated[str | None, _meant("secret_command")] = None
    tls: Annotated[bool, _meant("tls")] = False
    tls_trusted: Annotated[str | None, _meant("tls_trusted")] = None
    tls_certificate: Annotated[str | None, _meant("tls_certificate")] = None
    tls_key: Annotated[str | None, _meant("tls_key")] = None
    tls_password_file: Annotated[str | None, _meant("tls_password_file")] = None
    tls_password_command: Annotated[str | None, _meant("tls_password_command")] = None
    tls_verify: Annotated[bool, _meant("tls_verify")] = True

    @property
    def connect(self) -> ConnectSettings:
        """These settings. ConfigurationError for what does not go together."""
        settings = ConnectSettings(**{name: getattr(self, name) for name in MEANINGS})
        settings.check()
        return settings

    @property
    def connect_options(self) -> dict[str, str]:
        """These settings as options of the data source."""
        from orbitmq.spark.connect_options import options_of

        return options_of(self.connect)


class Pipeline(Protocol):
    """A pipeline as its callers see it: what it works on, then its settings and `run` as keywords."""

    __name__: str
    settings_type: type
    """The struct of its settings."""

    def __call__(self, *given: Any, **settings: Any) -> Summary: ...


def settings_of(settings_type: type) -> tuple[NamedSetting, ...]:
    """The settings that a struct declares, in its order. TypeError for one that breaks the rules of this file."""
    hints = get_type_hints(settings_type, include_extras=True)
    found = []
    shared = {field.name for field in fields(ClusterSettings)}
    for field in sorted(fields(settings_type), key=lambda field: field.name in shared):  # its own settings first
        hint, place = hints[field.name], f"{settings_type.__name__}: {field.name}"
        if get_origin(hint) is not Annotated or not isinstance(hint.__metadata__[0], Setting):
            raise TypeError(f"{place} is not Annotated[..., Setting(...)]")
        setting: Setting = hint.__metadata__[0]
        value_type, form = _shape(hint.__origin__, place)
        required = field.default is MISSING
        found.append(
            NamedSetting(
                parameter=field.name,
                name=_outside_name(field.name, setting.kind),
                type=value_type,
                form=form,
                required=required,
                default=None if required else field.default,
                setting=setting,
            )
        )
    return tuple(found)


def pipeline(settings_type: type) -> Callable[[Callable[..., Summary]], Pipeline]:
    """Make a pipeline of a function that takes its settings as the keyword `settings`, a struct of this type.

    Callers give the fields of the struct as keywords. They are checked before the function begins. Its summary is named after the function,
    and says how long it took.
    """

    def declared(function: Callable[..., Summary]) -> Pipeline:
        @functools.wraps(function)
        def called(*given: Any, **keywords: Any) -> Summary:
            known = {setting.parameter: setting for setting in settings_of(settings_type)}
            own = {name: keywords.pop(name) for name in known if name in keywords}
            checked = {
                name: None if value is None else _checked(known[name], value, name) for name, value in own.items()
            }
            settings = settings_type(**checked)
            if given and given[0] is not None:
                ready_workers(given[0])
            begun_ns = _CLOCK.monotonic_ns()
            summary = function(*given, settings=settings, **keywords)
            seconds = (_CLOCK.monotonic_ns() - begun_ns) / 1e9
            return replace(summary, pipeline=function.__name__.replace("_", "-"), seconds=seconds)

        made = cast(Pipeline, called)
        made.settings_type = settings_type
        made.__signature__ = _signature(function, settings_type)  # type: ignore[attr-defined]
        return made

    return declared


def _signature(function: Callable[..., Summary], settings_type: type) -> inspect.Signature:
    """What `help` shows: the fields of the struct in place of `settings`."""
    of_function = inspect.signature(function)
    shown: list[inspect.Parameter] = []
    for parameter in of_function.parameters.values():
        if parameter.name == "settings":
            shown += inspect.signature(settings_type).parameters.values()
        else:
            shown.append(parameter)
    return of_function.replace(parameters=shown)


def from_texts(settings: Iterable[NamedSetting], given: Mapping[str, Sequence[str]], now_ms: int) -> dict[str, Any]:
    """Arguments of the function, from the words of a command line by the settings' names without dashes in front."""
    known = {setting.name: setting for setting in settings}
    found: dict[str, Any] = {}
    for name, texts in given.items():
        setting = _known(name, known, "option --")
        place = f"--{name}"
        values = [_from_text(setting, text, place, now_ms) for text in texts]
        found[setting.parameter] = _checked(setting, _together(setting, values, place), place)
    _require(known.values(), found, "--")
    return found


def from_values(settings: Iterable[NamedSetting], given: Mapping[str, object], now_ms: int) -> dict[str, Any]:
    """Arguments of the function, from values of a TOML table."""
    known = {setting.name: setting for setting in settings}
    found: dict[str, Any] = {}
    for name, value in given.items():
        setting = _known(name, known, "setting ")
        if isinstance(value, datetime.date):  # which TOML has without quotes
            value = value.isoformat()
        if isinstance(value, str) and setting.form is not Form.NAMED:
            value = _from_text(setting, value, name, now_ms) if setting.type is not bool else value
        found[setting.parameter] = _checked(setting, value, name)
    _require(known.values(), found, "")
    return found


def optional(settings: Iterable[NamedSetting]) -> list[NamedSetting]:
    """The same without what has to be given, for values that are looked at one by one."""
    return [replace(setting, required=False) for setting in settings]


def _outside_name(parameter: str, kind: TimeKind) -> str:
    name = parameter.removesuffix("_ms") if kind is not TimeKind.PLAIN else parameter
    return name.strip("_").replace("_", "-")


def _shape(hint: Any, place: str) -> tuple[type, Form]:
    if get_origin(hint) in (Union, types.UnionType):
        options = [option for option in get_args(hint) if option is not type(None)]
        if len(options) != 1:
            raise TypeError(f"{place} has a type of several kinds")
        hint = options[0]
    form = Form.ONE
    if get_origin(hint) in _MANY:
        form = _MANY[get_origin(hint)]
        hint = get_args(hint)[0]
    if hint in (str, int, float, bool) or (isinstance(hint, type) and issubclass(hint, StrEnum)):
        return hint, form
    raise TypeError(f"{place} has a type that no setting has: {hint}")


_MANY: Final[Mapping[Any, Form]] = {Sequence: Form.SEVERAL, tuple: Form.SEVERAL, Mapping: Form.NAMED}


def _known(name: str, known: Mapping[str, NamedSetting], what: str) -> NamedSetting:
    setting = known.get(name)
    if setting is None:
        near = nearest(name, known)
        meant = f"did you mean {near}? " if near else ""
        raise ConfigurationError(f"there is no {what}{name}", remedy=f"{meant}known are: {', '.join(known)}")
    return setting


def _require(settings: Iterable[NamedSetting], found: Mapping[str, object], dashes: str) -> None:
    missing = [dashes + setting.name for setting in settings if setting.required and setting.parameter not in found]
    if missing:
        raise ConfigurationError(f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")


def _from_text(setting: NamedSetting, text: str, place: str, now_ms: int) -> Any:
    match setting.setting.kind:
        case TimeKind.INSTANT:
            return parse_instant_ms(place, text, now_ms)
        case TimeKind.DUE:
            return parse_due_ms(place, text, now_ms)
        case TimeKind.SPAN:
            return parse_span_ms(place, text)
        case TimeKind.PLAIN:
            pass
    if setting.type in (int, float):
        try:
            return setting.type(text)
        except ValueError as error:
            raise ConfigurationError(f"{place} {text!r} is no {_TYPE_NAMES[setting.type]}") from error
    if setting.type is bool:
        if text.lower() not in ("true", "false"):
            raise ConfigurationError(f"{place} {text!r} is neither true nor false")
        return text.lower() == "true"
    return text


def _together(setting: NamedSetting, values: Sequence[Any], place: str) -> Any:
    if setting.form is Form.SEVERAL:
        return tuple(values)
    if setting.form is Form.NAMED:
        pairs = [str(value).partition("=") for value in values]
        for name, equals, _ in pairs:
            if not name or not equals:
                raise ConfigurationError(f"{place} {name!r} is not of the form NAME=TEXT")
        return {name: text for name, _, text in pairs}
    if len(values) != 1:
        raise ConfigurationError(f"{place} is given {len(values)} times")
    return values[0]


_TYPE_NAMES: Final[Mapping[type, str]] = {str: "text", int: "whole number", float: "number", bool: "truth value"}


def _checked(setting: NamedSetting, value: Any, place: str) -> Any:
    """The value in the form that the function takes."""
    if setting.form is Form.SEVERAL:
        values = (value,) if isinstance(value, str | int | float) else value
        if not isinstance(values, Iterable) or isinstance(values, Mapping):
            raise ConfigurationError(f"{place} is {value!r}, not several values")
        return tuple(_checked_one(setting, one, place) for one in values)
    if setting.form is Form.NAMED:
        if not isinstance(value, Mapping):
            raise ConfigurationError(f"{place} is {value!r}, not names with values")
        return {str(name): _checked_one(setting, one, f"{place}.{name}") for name, one in value.items()}
    return _checked_one(setting, value, place)


def _checked_one(setting: NamedSetting, value: Any, place: str) -> Any:
    if setting.choices:
        if value not in setting.choices:
            raise ConfigurationError(f"{place} is {value!r}", remedy=f"it is one of {', '.join(setting.choices)}")
        return setting.type(value)
    if isinstance(value, str) and (not value or "\0" in value):
        raise ConfigurationError(f"{place} is {value!r}", remedy="leave it out, or say what is meant")
    wanted = (int, float) if setting.type is float else setting.type
    if not isinstance(value, wanted) or (isinstance(value, bool) and setting.type is not bool):
        raise ConfigurationError(f"{place} is {value!r}, which is no {_TYPE_NAMES[setting.type]}")
    low, high = _bounds(setting.setting)
    if isinstance(value, int | float) and not (low <= value <= high):  # in this form, because of what is no number

        def shown(number: float) -> str:
            return span_of(int(number)) if setting.setting.kind is TimeKind.SPAN else str(number)

        bounds = f"{shown(low)} or more" if high == math.inf else f"{shown(low)} to {shown(high)}"
        raise ConfigurationError(f"{place} is {shown(value)}; it has to be {bounds}")
    return value


def _bounds(setting: Setting) -> tuple[float, float]:
    """The least and the most that a number may be. Times without a bound of their own have that of Spark and of the clocks of threads."""
    least, most = {
        TimeKind.PLAIN: (-math.inf, math.inf),
        TimeKind.SPAN: (0, PIPELINE_SPAN_MS_MAX),
        TimeKind.INSTANT: (0, PIPELINE_INSTANT_MS_MAX),
        TimeKind.DUE: (0, PIPELINE_INSTANT_MS_MAX),
    }[setting.kind]
    return (
        least if setting.minimum is None else setting.minimum,
        most if setting.maximum is None else setting.maximum,
    )
