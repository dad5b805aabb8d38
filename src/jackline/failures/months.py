"""Know the months as clients print them in English, Spanish, Portuguese, German, French, Italian.

Laws: (1) names are matched without case, accents kept or lost, with or without a final dot; (2) an
abbreviation of three letters or more counts when only one month begins so.
Not here: the order of day, month and year (resets.py).
"""

from __future__ import annotations

import unicodedata

_NAMES = (
    "january enero janeiro januar janvier gennaio janner",
    "february febrero fevereiro februar fevrier febbraio feber",
    "march marzo marco marz mars maerz mrz",
    "april abril avril aprile",
    "may mayo maio mai maggio",
    "june junio junho juni juin giugno",
    "july julio julho juli juillet luglio",
    "august agosto aout",
    "september septiembre setembro septembre settembre setiembre",
    "october octubre outubro oktober octobre ottobre",
    "november noviembre novembro novembre",
    "december diciembre dezembro dezember decembre dicembre",
)
# Three letters that two months share in some language, settled by what clients really print.
_SHORT = {"jui": 6, "mar": 3, "mai": 5, "avr": 4, "juil": 7}

MONTH = r"[a-zà-ÿ]{3,10}"


def month_number(name: str) -> int | None:
    """1 to 12 for a month's name or abbreviation; None for any other word."""
    plain = _without_accents(name.strip(". ").lower())
    if plain in _SHORT:
        return _SHORT[plain]
    if len(plain) < 3:
        return None
    hits = {
        number
        for number, names in enumerate(_NAMES, start=1)
        if any(known.startswith(plain) for known in names.split())
    }
    return hits.pop() if len(hits) == 1 else None


def _without_accents(word: str) -> str:
    decomposed = unicodedata.normalize("NFD", word)
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter))
