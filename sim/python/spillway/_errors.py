"""Errors. The module _core raises them by name."""

import re

#: A configuration that is no file has no lines: "config:1 (/seed)" is the key seed of the dictionary.
_NO_FILE = re.compile(r"^(config|keywords):\d+")


class Problem(tuple):
    """One mistake: what it is, where, and what to do about it (fix). Empty texts say nothing."""

    __slots__ = ()

    def __new__(cls, what, where="", fix=""):
        return super().__new__(cls, (what, where, fix))

    what = property(lambda self: self[0], doc="One sentence.")
    where = property(lambda self: self[1], doc="The key, or the file and line.")
    fix = property(lambda self: self[2], doc="What to do.")

    def __getnewargs__(self):
        return tuple(self)

    def __repr__(self):
        return f"Problem(what={self.what!r}, where={self.where!r}, fix={self.fix!r})"


class Error(Exception):
    """A run that cannot be made. `problems` has every mistake that was found, not only the first."""

    def __init__(self, problems, text=None):
        self.problems = [Problem(what, _NO_FILE.sub(r"\1", where), fix) for what, where, fix in problems]
        if text is None:
            text = "".join(f"error: {p[0]}\n" + "".join(f"  {t}\n" for t in p[1:] if t) for p in problems)
        text = re.sub(r"^(  at (?:config|keywords)):\d+", r"\1", text, flags=re.MULTILINE)
        super().__init__(text.rstrip("\n"))

    def __reduce__(self):
        return type(self), ([tuple(p) for p in self.problems], str(self))


class ConfigError(Error, ValueError):
    """The configuration is wrong: an unknown key, a value out of range, a model that does not fit."""


class DataError(Error, ValueError):
    """A trace, profile or result is wrong, or cannot be read."""


class InvariantError(Error, RuntimeError):
    """A defect in Spillway or in a policy."""
