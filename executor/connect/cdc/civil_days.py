"""Days since 1970 in the proleptic Gregorian calendar, for any year: Python's own dates begin with the year 1 and end
with 9999, those of the databases do not.

The years begin in March, so that a leap day is the last day of its year.
"""

from __future__ import annotations


def days_of(year: int, month: int, day: int) -> int:
    """The days since 1970; also of dates that do not exist, which MySQL may allow.

    >>> days_of(1970, 1, 1), days_of(2000, 2, 29), days_of(2001, 2, 29) == days_of(2001, 3, 1)
    (0, 11016, True)
    """
    shifted = year - (month <= 2)
    era, of_era = divmod(shifted, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def date_of(days: int) -> tuple[int, int, int]:
    """The year, month and day of a number of days since 1970.

    >>> date_of(-719_529), date_of(11_016)
    ((-1, 12, 31), (2000, 2, 29))
    """
    era, of_era = divmod(days + 719_468, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year + era * 400 + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1
