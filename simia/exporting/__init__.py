"""Export: trajectories out of simia, in the form that a trainer reads, with a data set card and an account of refusals."""

from simia.exporting.exporter import export
from simia.exporting.facts import CardFacts, ExportReport, Format, Segment, Template
from simia.exporting.tokens import CountTokens, estimate_tokens

__all__ = ["CardFacts", "CountTokens", "ExportReport", "Format", "Segment", "Template", "estimate_tokens", "export"]
