"""Stages that several recipes share."""
