"""Lines of progress that the next line makes old."""


class PassingLine(str):
    """A text like any other; a terminal may show the next one in its place. What is made of it is a plain text."""

    __slots__ = ()
