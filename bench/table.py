"""Markdown tables of the results of `bench/run run`: medians over the rounds, and the ratio to the limit."""

import json
import statistics
import sys

# Columns of each scenario. The ratio compares the first column.
COLUMNS = {
    "send": ["per_cpu_s", "per_s", "p50_ms", "p99_ms", "p999_ms", "cpu_ms_per_1k", "response_bytes", "bad"],
    "get": ["per_cpu_s", "per_s", "p50_ms", "p99_ms", "history", "response_bytes", "bad"],
    "stream": ["events_per_cpu_s", "events_per_s", "first_event_p50_ms", "first_event_p99_ms", "p99_ms", "ok", "bad"],
    "fanout": ["deliveries_per_cpu_s", "deliveries_per_s", "attached", "complete_subscribers", "lost", "errors"],
    "idle": ["kb_per_stream", "opened", "open_cpu_ms_each", "idle_cpu_fraction", "send_while_open_ms"],
    "growth": ["per_cpu_s_first", "per_cpu_s_last", "slowdown", "bytes_per_task", "tasks", "rss_kb_after", "bad"],
    "large": ["mb_per_cpu_s", "mb_per_s", "peak_rss_kb", "p99_ms", "response_bytes", "ok", "bad"],
    "startup": ["ready_ms", "rss_kb_idle", "cpu_s_to_ready"],
}
LESS_IS_BETTER = {"idle", "startup"}


def unique(values):
    return list(dict.fromkeys(values))


def median(rows, column):
    values = [row[column] for row in rows if isinstance(row.get(column), (int, float))]
    return statistics.median(values) if values else None


def shown(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:g}"


def table(spec, rows):
    kind = spec.split(":")[0]
    columns = COLUMNS.get(kind)
    if not columns:
        return
    medians, failures = {}, {}
    for server in unique(row["server"] for row in rows):
        mine = [row for row in rows if row["server"] == server]
        good = [row for row in mine if "error" not in row]
        medians[server] = {column: median(good, column) for column in columns}
        failures[server] = next((row["error"][:80] for row in mine if "error" in row), "")
    limit = medians.get("limit", {}).get(columns[0])
    print(f"\n## {spec}\n\n| server | ratio to limit | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 2)}")
    sign = 1 if kind in LESS_IS_BETTER else -1
    for server, found in sorted(medians.items(), key=lambda item: (item[1][columns[0]] is None, sign * (item[1][columns[0]] or 0))):
        first = found[columns[0]]
        ratio = f"{first / limit:.2f}" if first and limit else "-"
        note = f" failed: {failures[server]}" if first is None else ""
        print(f"| {server} | {ratio} | {' | '.join(shown(found[column]) for column in columns)} |{note}")


def main():
    with open(sys.argv[1]) as file:
        rows = [json.loads(line) for line in file]
    for spec in unique(row["spec"] for row in rows):
        table(spec, [row for row in rows if row["spec"] == spec])


main()
