"""The checks, in the order they run: each module registers its own."""
from . import (  # noqa: F401
    quickstart, shop, examples, admission, configuration, access, elsewhere, families, injection, starting, languages, elastic, disruption, elastic_later, draining,
    measures, uninstall,
)
