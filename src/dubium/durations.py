"""How long something takes, in words."""


def duration_text(seconds: float) -> str:
    """Seconds as people say them.

    >>> duration_text(4.2), duration_text(200.0), duration_text(9000.0)
    ('4 s', '3 min', '2.5 h')
    """
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
