"""Settings of pipelines: one declaration, in the signature of the function, for every place where they are given.

    def archive(spark: SparkSession, *, to: Annotated[str, Setting("Directory or URL.", metavar="URL")], ..., run: Run = ALONE)

Every keyword of the function but `run` is a setting: `since_ms` is `--since` on the command line and `since` in a file of
pipelines, where a bare word, a unit or a date stands for what the function takes as milliseconds.

Rules of this file
1. A setting is a text, a whole number, a number, a truth value, a StrEnum, several texts (`Sequence[str]`) or named texts
   (`Mapping[str, str]`), each also with None for "not given".
2. What is given is checked here, whoever gives it: an unknown name lists the known ones, and bounds name the setting.
3. The annotations are read without importing Spark: other types than SparkSession and DataFrame must exist when the module runs.
"""

from __future__ import annotations

import datetime
import difflib
import functools
import inspect
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Annotated, Any, Final, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from orbitmq.errors import ConfigurationError
from orbitmq.instants import parse_due_ms, parse_instant_ms, parse_span_ms

P = ParamSpec("P")
R = TypeVar("R")


class Kind(Enum):
    """What a number of milliseconds stands for, which decides how people write it."""

    PLAIN = "plain"
    INSTANT = "instant"
    """`2024-05-01T12:00:00Z`, milliseconds since the epoch, `now`, or a span: so long ago. The parameter ends in `_ms`."""
    DUE = "due"
    """As INSTANT, but a span is from now on."""
    SPAN = "span"
    """`500ms`, `30s`, `10m`, `2h`, `7d`. The parameter ends in `_ms`."""


@dataclass(frozen=True)
class Setting:
    """What the type of a parameter cannot say. help: one or two sentences, for `--help` and the reference page."""

    help: str
    metavar: str = ""
    kind: Kind = Kind.PLAIN
    minimum: int | float | None = None
    maximum: int | float | None = None
    replaces_cluster: bool = False
    """Where it is given no cluster may be asked: the command fills in no name server, and a default of a file does not count."""
    spares_cluster: bool = False
    """Where it is given no cluster has to be asked: the command fills in no name server that nobody named."""


class Form(Enum):
    """How values are put together."""

    ONE = "one"
    SEVERAL = "several"
    NAMED = "named"


@dataclass(frozen=True)
class NamedSetting:
    """A parameter of a pipeline, as everybody but the function itself sees it."""

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
        if self.setting.kind is Kind.SPAN:
            return "SPAN"
        if self.setting.kind in (Kind.INSTANT, Kind.DUE):
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


def settings_of(function: Callable[..., object]) -> tuple[NamedSetting, ...]:
    """The settings of a pipeline, in the order of its signature. TypeError for a signature that breaks the rules of this file."""
    hints = get_type_hints(function, localns={"SparkSession": Any, "DataFrame": Any}, include_extras=True)
    found = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY or parameter.name == "run":
            continue
        hint = hints[parameter.name]
        if get_origin(hint) is not Annotated or not isinstance(hint.__metadata__[0], Setting):
            raise TypeError(f"{function.__name__}: {parameter.name} is not Annotated[..., Setting(...)]")
        setting: Setting = hint.__metadata__[0]
        value_type, form = _shape(hint.__origin__, f"{function.__name__}: {parameter.name}")
        required = parameter.default is inspect.Parameter.empty
        found.append(
            NamedSetting(
                parameter=parameter.name,
                name=_outside_name(parameter.name, setting.kind),
                type=value_type,
                form=form,
                required=required,
                default=None if required else parameter.default,
                setting=setting,
            )
        )
    return tuple(found)


def pipeline(function: Callable[P, R]) -> Callable[P, R]:
    """The function, with its settings checked before it begins; for callers in Python, whose values are neither text nor TOML."""

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        settings = {setting.parameter: setting for setting in settings_of(function)}
        for name, value in kwargs.items():
            if name in settings and value is not None:
                kwargs[name] = _checked(settings[name], value, settings[name].parameter)
        return function(*args, **kwargs)

    return checked


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
        if isinstance(value, str) and setting.form is not Form.NAMED:
            value = _from_text(setting, value, name, now_ms) if setting.type is not bool else value
        elif isinstance(value, datetime.datetime) and setting.setting.kind in (Kind.INSTANT, Kind.DUE):
            value = int(value.timestamp() * 1000)
        elif isinstance(value, datetime.date) and setting.type is str:
            value = value.isoformat()
        found[setting.parameter] = _checked(setting, value, name)
    _require(known.values(), found, "")
    return found


def _outside_name(parameter: str, kind: Kind) -> str:
    name = parameter.removesuffix("_ms") if kind is not Kind.PLAIN else parameter
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
        near = difflib.get_close_matches(name, known, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise ConfigurationError(f"there is no {what}{name}", remedy=f"{meant}known are: {', '.join(known)}")
    return setting


def _require(settings: Iterable[NamedSetting], found: Mapping[str, object], dashes: str) -> None:
    missing = [dashes + setting.name for setting in settings if setting.required and setting.parameter not in found]
    if missing:
        raise ConfigurationError(f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")


def _from_text(setting: NamedSetting, text: str, place: str, now_ms: int) -> Any:
    match setting.setting.kind:
        case Kind.INSTANT:
            return parse_instant_ms(place, text, now_ms)
        case Kind.DUE:
            return parse_due_ms(place, text, now_ms)
        case Kind.SPAN:
            return parse_span_ms(place, text)
        case Kind.PLAIN:
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
    wanted = (int, float) if setting.type is float else setting.type
    if not isinstance(value, wanted) or (isinstance(value, bool) and setting.type is not bool):
        raise ConfigurationError(f"{place} is {value!r}, which is no {_TYPE_NAMES[setting.type]}")
    low, high = setting.setting.minimum, setting.setting.maximum
    if isinstance(value, int | float) and ((low is not None and value < low) or (high is not None and value > high)):
        if high is None:
            raise ConfigurationError(f"{place} is {value}; it has to be {low} or more")
        raise ConfigurationError(f"{place} is {value}; it has to be {'up to' if low is None else f'{low} to'} {high}")
    return value
