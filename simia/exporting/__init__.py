"""Export trajectories in the format of a trainer, with a data set card and a list of refused rows."""

from simia.exporting.data_card import CardFacts
from simia.exporting.export_records import ExportReport, Format, Segment, Template
from simia.exporting.exporter import export
from simia.exporting.token_estimate import CountTokens, estimate_tokens

__all__ = ["CardFacts", "CountTokens", "ExportReport", "Format", "Segment", "Template", "estimate_tokens", "export"]
