"""Parses OpenMetrics text from stdin, and prints one line per metric family: name, type and labels."""

import sys

from prometheus_client.openmetrics.parser import text_string_to_metric_families

for family in text_string_to_metric_families(sys.stdin.read()):
    labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
    print(family.name, family.type, ",".join(labels))
