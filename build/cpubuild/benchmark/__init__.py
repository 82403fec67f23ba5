"""Measure the served model: latency, throughput, memory."""
