"""Options that several commands have, as one parameter: a data class with a field for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of its groups in their places, as the parser and the help need them.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Size:
    ...     width: int = 1
    ...     height: int = 2
    >>> def draw(name: str, *, size: Size) -> None:
    ...     print(name, size.width * size.height)
    >>> command = grouped(draw)
    >>> list(signature(command).parameters)
    ['name', 'width', 'height']
    >>> command(name="box", width=3)
    box 6
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}

    @wraps(command)
    def call(**given: Any) -> None:
        for name, group in groups.items():
            own = {field.name: given.pop(field.name) for field in fields(group) if field.name in given}
            given[name] = group(**own)
        command(**given)

    parameters: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        parameters += _options(groups[name]) if name in groups else [parameter.replace(annotation=hints[name])]
    flat = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in parameters]
    call.__signature__ = Signature(flat)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    return call


def _options(group: Any) -> list[Parameter]:
    """The fields of a group as parameters."""
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name])
        for field in fields(group)
    ]
