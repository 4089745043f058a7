"""Models of other libraries as posteriors. The libraries are imported only where their objects are met."""

from dubium.posteriors.adapters.dispatch import as_posterior

__all__ = ["as_posterior"]
