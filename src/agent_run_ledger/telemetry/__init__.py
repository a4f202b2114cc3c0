"""Observers that speak to monitoring systems: OpenTelemetry and Prometheus, each with an extra of its own."""

from __future__ import annotations

from agent_run_ledger.telemetry.opentelemetry import OpenTelemetry
from agent_run_ledger.telemetry.prometheus import Prometheus

__all__ = ["OpenTelemetry", "Prometheus"]
