"""Variables of libpq as a shell may have them: each breaks or misleads a connection that uses it."""

from types import MappingProxyType
from typing import Final

from gobblin_assets.db.libpq import list_variables
from gobblin_assets.settings import UNASKED_VARIABLES

_TELLING: Final = {
    "PGHOST": "/nowhere",
    "PGHOSTADDR": "127.0.0.1",
    "PGPORT": "1",
    "PGUSER": "nobody",
    "PGDATABASE": "nowhere",
    "PGOPTIONS": "-c nonsense=1",
    "PGSSLMODE": "verify-full",
    "PGCHANNELBINDING": "require",
    "PGREQUIREAUTH": "none",
    "PGTARGETSESSIONATTRS": "standby",
    "PGMINPROTOCOLVERSION": "3.2",
    "PGMAXPROTOCOLVERSION": "latest",
    "PGSSLMINPROTOCOLVERSION": "TLSv1.3",
    "PGSSLMAXPROTOCOLVERSION": "TLSv1",
    "PGTZ": "Nowhere/Land",
    "PGDATESTYLE": "SQL, DMY",
}

HOSTILE: Final = MappingProxyType(
    {name: _TELLING.get(name, "nonsense") for name in (*list_variables().values(), *UNASKED_VARIABLES)}
)
"""A value for every variable that this machine's libpq knows."""
