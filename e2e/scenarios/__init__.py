"""The checks, in the order they run: each module registers its own."""
from . import quickstart, shop, examples, admission, configuration, injection, disruption, draining, measures, uninstall  # noqa: F401
