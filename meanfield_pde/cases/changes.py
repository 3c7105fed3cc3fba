"""Keys of a case that take other values than its file gives them, as in "--attention.beta 9".

Data in: words of a command line, the tables of a case. Data out: the tables, changed.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from meanfield_pde import inputs


def toml(text: str) -> dict[str, Any]:
    """The tables of a text in TOML. Raises ValueError."""
    import tomllib

    return tomllib.loads(text)


def key_values(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Keys and values of "--attention.beta 9", "--attention.beta=9" and "--t-end 3". Raises ValueError for words that are none."""
    left = iter(words)
    for word in left:
        if not word.startswith("--") or word == "--":
            raise ValueError(f"{word!r} is no option and no key of the case, wanted --KEY VALUE, such as --attention.beta 9")
        key, equals, text = word.removeprefix("--").partition("=")
        if not equals:
            text = next(left, "--")
            if text.startswith("--"):
                raise ValueError(f"{word} has no value, wanted {word} VALUE")
        yield key.replace("-", "_"), text


def change(tables: dict[str, Any], key: str, text: str) -> None:
    """Sets one key, "table.key"; a missing table is begun. text: a value in TOML, else a text. Raises ValueError for a bad key."""
    *path, last = key.split(".")
    if not all((*path, last)):
        raise ValueError(f"the key {key!r} has an empty part, wanted names with a dot between them, such as attention.beta")
    table = tables
    for depth, name in enumerate(path):
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise ValueError(f"{key}: {'.'.join(path[: depth + 1])} is {inputs.shown(table)}, wanted a table")
    table[last] = _value(text)


def _value(text: str) -> Any:
    try:
        read = toml(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return read["value"] if len(read) == 1 else text
