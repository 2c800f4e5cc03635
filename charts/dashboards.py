#!/usr/bin/env python3
"""Writes charts/waybill/files/dashboards/*.json, Grafana dashboards, from the table below. `make docs` runs it; a test fails while they differ."""

import argparse
import json
import pathlib

FOLDER = pathlib.Path(__file__).resolve().parent / "waybill" / "files" / "dashboards"
WIDTH, HEIGHT, COLUMNS = 8, 8, 3
# What stands for $pods in the queries: the pods that were chosen at the top of the dashboard.
PODS = 'namespace=~"$namespace",pod=~"$pod"'

# File → title, what lists its pods, and its panels: (title, unit, [(query, legend)…]). "row" begins a row.
DASHBOARDS = {
    "broker": ("Waybill / Brokers", "waybill_store_segments", [
        ("row", "Messages"),
        ("Stored", "cps", [("sum by (topic) (rate(rocketmq_messages_in_total{$pods}[$__rate_interval]))", "{{topic}}")]),
        ("Delivered", "cps", [("sum by (consumer_group) (rate(rocketmq_messages_out_total{$pods}[$__rate_interval]))", "{{consumer_group}}")]),
        ("Acknowledged, and leases changed", "cps", [
            ("sum(rate(waybill_broker_acks_total{$pods}[$__rate_interval]))", "acknowledged"),
            ("sum(rate(waybill_broker_acks_without_effect_total{$pods}[$__rate_interval]))", "without effect"),
            ("sum(rate(waybill_broker_lease_changes_total{$pods}[$__rate_interval]))", "changed"),
            ("sum(rate(waybill_broker_lease_changes_refused_total{$pods}[$__rate_interval]))", "changes refused")]),
        ("Bytes stored", "Bps", [("sum by (pod) (rate(rocketmq_throughput_in_total{$pods}[$__rate_interval]))", "{{pod}}")]),
        ("Bytes delivered", "Bps", [("sum by (pod) (rate(rocketmq_throughput_out_total{$pods}[$__rate_interval]))", "{{pod}}")]),
        ("Requests that were refused", "cps", [
            ('sum by (request_code, response_code) (rate(waybill_broker_requests_total{$pods,response_code!="0"}[$__rate_interval]))',
             "{{request_code}} → {{response_code}}")]),
        ("row", "Store"),
        ("Log on disk", "bytes", [("waybill_store_log_bytes{$pods}", "{{pod}}")]),
        ("Age of the oldest message", "s", [("waybill_store_oldest_message_seconds{$pods}", "{{pod}}")]),
        ("Disk full", "bool", [("waybill_store_disk_full{$pods}", "{{pod}}")]),
        ("Batches written with one sync", "short", [
            ("sum by (pod) (rate(waybill_store_records_total{$pods}[$__rate_interval]))"
             " / sum by (pod) (rate(waybill_store_syncs_total{$pods}[$__rate_interval]))", "{{pod}}")]),
        ("Bytes written to the log", "Bps", [("sum by (pod) (rate(waybill_store_bytes_total{$pods}[$__rate_interval]))", "{{pod}}")]),
        ("Dropped by retention, and held back", "short", [
            ("sum by (cause) (increase(waybill_retention_messages_dropped_total{$pods}[$__rate_interval]))", "messages dropped: {{cause}}"),
            ("sum by (promised) (waybill_retention_segments_held_back{$pods})", "segments held back: {{promised}}")]),
        ("row", "Delays and transactions"),
        ("Delayed messages that wait", "short", [("sum by (topic) (rocketmq_timing_messages{$pods})", "{{topic}}")]),
        ("Delayed messages late by", "ms", [("waybill_timer_overdue_milliseconds{$pods}", "{{pod}}")]),
        ("Transactions", "cps", [
            ("sum(rate(rocketmq_commit_messages_total{$pods}[$__rate_interval]))", "committed"),
            ("sum(rate(rocketmq_rollback_messages_total{$pods}[$__rate_interval]))", "rolled back"),
            ("sum(rate(waybill_broker_transactions_given_up_total{$pods}[$__rate_interval]))", "given up"),
            ("sum(rate(waybill_broker_transaction_checks_total{$pods}[$__rate_interval]))", "questions")]),
        ("row", "Process"),
        ("Memory", "bytes", [("process_resident_memory_bytes{$pods}", "{{pod}}")]),
        ("CPU", "percentunit", [("rate(process_cpu_seconds_total{$pods}[$__rate_interval])", "{{pod}}")]),
        ("Clients watched", "short", [("waybill_broker_clients_watched{$pods}", "{{pod}}")]),
    ]),
    "groups": ("Waybill / Consumer groups", "rocketmq_consumer_lag_messages", [
        ("row", "What is not done"),
        ("Lag", "short", [("sum by (topic, consumer_group) (rocketmq_consumer_lag_messages{$pods})", "{{consumer_group}} · {{topic}}")]),
        ("Ready", "short", [("sum by (topic, consumer_group) (rocketmq_consumer_ready_messages{$pods})", "{{consumer_group}} · {{topic}}")]),
        ("In flight", "short", [("sum by (topic, consumer_group) (rocketmq_consumer_inflight_messages{$pods})", "{{consumer_group}} · {{topic}}")]),
        ("Waiting for a retry", "short", [
            ("sum by (topic, consumer_group) (waybill_consumer_waiting_retry_messages{$pods})", "{{consumer_group}} · {{topic}}")]),
        ("Blocked behind another message", "short", [
            ("sum by (topic, consumer_group) (waybill_consumer_blocked_messages{$pods})", "{{consumer_group}} · {{topic}}")]),
        ("Delivered", "cps", [
            ("sum by (topic, consumer_group) (rate(rocketmq_messages_out_total{$pods}[$__rate_interval]))", "{{consumer_group}} · {{topic}}")]),
        ("row", "What went wrong"),
        ("Dead letters that were not sent back", "short", [("sum by (consumer_group) (waybill_consumer_dead_letters{$pods})", "{{consumer_group}}")]),
        ("Dead letters, new and sent back", "cps", [
            ("sum by (consumer_group) (rate(rocketmq_send_to_dlq_messages_total{$pods}[$__rate_interval]))", "new: {{consumer_group}}"),
            ("sum by (consumer_group) (rate(waybill_broker_dead_letters_redriven_total{$pods}[$__rate_interval]))", "sent back: {{consumer_group}}")]),
        ("Leases of clients that are gone", "cps", [
            ("sum by (pod) (rate(waybill_broker_leases_of_gone_clients_total{$pods}[$__rate_interval]))", "{{pod}}")]),
    ]),
    "sidecar": ("Waybill / Proxies and sidecars", "waybill_sidecar_connections", [
        ("row", "Clients"),
        ("Connections", "short", [("waybill_sidecar_connections{$pods}", "{{pod}}")]),
        ("Calls", "cps", [("sum by (request_code) (rate(waybill_rpc_calls_total{$pods}[$__rate_interval]))", "{{request_code}}")]),
        ("Calls that failed", "cps", [
            ('sum by (request_code, response_code) (rate(waybill_rpc_calls_total{$pods,response_code!~"OK|MESSAGE_NOT_FOUND|MULTIPLE_RESULTS"}[$__rate_interval]))',
             "{{request_code}} → {{response_code}}")]),
        ("Time to answer a send, 99 of 100", "ms", [
            ('histogram_quantile(0.99, sum by (le, pod) (rate(rocketmq_rpc_latency_bucket{$pods,request_code="SendMessage"}[$__rate_interval])))', "{{pod}}")]),
        ("Messages in and out", "cps", [
            ("sum(rate(waybill_sidecar_messages_in_total{$pods}[$__rate_interval]))", "in"),
            ("sum(rate(waybill_sidecar_messages_out_total{$pods}[$__rate_interval]))", "out"),
            ("sum(rate(waybill_messages_undelivered_total{$pods}[$__rate_interval]))", "given back: the client had gone")]),
        ("Receives that wait", "short", [("waybill_receives_waiting{$pods}", "{{pod}}")]),
        ("row", "Leases"),
        ("Held for clients", "short", [
            ("sum by (pod) (waybill_sidecar_receipts_held{$pods})", "renewed: {{pod}}"),
            ("sum by (pod) (waybill_sidecar_receipts_kept{$pods})", "not renewed: {{pod}}")]),
        ("Renewed, and lost", "cps", [
            ("sum(rate(waybill_sidecar_receipts_renewed_total{$pods}[$__rate_interval]))", "renewed"),
            ("sum(rate(waybill_sidecar_receipts_late_total{$pods}[$__rate_interval]))", "ended before"),
            ("sum by (cause) (rate(waybill_sidecar_receipts_failed_total{$pods}[$__rate_interval]))", "failed: {{cause}}")]),
        ("The renewal due longest has waited", "s", [("waybill_sidecar_receipts_oldest_due_seconds{$pods}", "{{pod}}")]),
        ("Leases in one request", "short", [
            ("sum by (kind) (rate(waybill_sidecar_lease_request_entries_sum{$pods}[$__rate_interval]))"
             " / sum by (kind) (rate(waybill_sidecar_lease_request_entries_count{$pods}[$__rate_interval]))", "{{kind}}")]),
        ("Batches that had to be sent in parts", "cps", [
            ("sum by (kind, why) (rate(waybill_sidecar_batch_fallbacks_total{$pods}[$__rate_interval]))", "{{kind}}: {{why}}")]),
        ("Ended or changed, by outcome", "cps", [
            ("sum by (kind, outcome) (rate(waybill_sidecar_lease_entries_total{$pods}[$__rate_interval]))", "{{kind}}: {{outcome}}")]),
        ("row", "Brokers and process"),
        ("Requests to brokers, by outcome", "cps", [
            ("sum by (outcome) (rate(waybill_sidecar_broker_requests_total{$pods}[$__rate_interval]))", "{{outcome}}")]),
        ("Memory", "bytes", [("process_resident_memory_bytes{$pods}", "{{pod}}")]),
        ("CPU", "percentunit", [("rate(process_cpu_seconds_total{$pods}[$__rate_interval])", "{{pod}}")]),
        ("Refused by access control", "cps", [("sum by (reason) (rate(waybill_access_refused_total{$pods}[$__rate_interval]))", "{{reason}}")]),
        ("Configuration in force", "bool", [("waybill_config_in_force{$pods}", "{{pod}}")]),
    ]),
    "operator": ("Waybill / Operator", "waybill_operator_leading", [
        ("row", "Resources"),
        ("Ready", "short", [('sum by (kind) (waybill_operator_resources{$pods,state="ready"})', "{{kind}}")]),
        ("Under way", "short", [('sum by (kind, reason) (waybill_operator_resources{$pods,state=~"progressing|new"})', "{{kind}} {{reason}}")]),
        ("Somebody has to do something", "short", [('sum by (kind, reason) (waybill_operator_resources{$pods,state="degraded"})', "{{kind}} {{reason}}")]),
        ("row", "Work"),
        ("Reconciliations", "cps", [
            ("sum by (controller, outcome) (rate(waybill_operator_reconciliations_total{$pods}[$__rate_interval]))", "{{controller}} {{outcome}}")]),
        ("Time of a reconciliation, 99 of 100", "s", [
            ("histogram_quantile(0.99, sum by (le, controller) (rate(waybill_operator_reconciliation_seconds_bucket{$pods}[$__rate_interval])))",
             "{{controller}}")]),
        ("Requests to the API server", "cps", [
            ("sum by (method, code) (rate(waybill_operator_api_requests_total{$pods}[$__rate_interval]))", "{{method}} {{code}}")]),
        ("New pods asked about", "cps", [("sum by (answer) (rate(waybill_operator_admissions_total{$pods}[$__rate_interval]))", "{{answer}}")]),
        ("row", "Process"),
        ("Which one works", "bool", [("waybill_operator_leading{$pods}", "{{pod}}")]),
        ("Memory", "bytes", [("process_resident_memory_bytes{$pods}", "{{pod}}")]),
        ("CPU", "percentunit", [("rate(process_cpu_seconds_total{$pods}[$__rate_interval])", "{{pod}}")]),
    ]),
}


def queries(dashboard):
    """Every query of a dashboard as Prometheus gets it, but for what the viewer chooses."""
    _title, lists, panels = dashboard
    found = [f"label_values({lists}, pod)"]
    for panel in panels:
        if panel[0] != "row":
            found += [query for query, _legend in panel[2]]
    return found


def variable(name, query):
    """A list at the top of the dashboard, of which the viewer chooses."""
    return {
        "name": name, "type": "query", "datasource": {"type": "prometheus", "uid": "$datasource"}, "query": query, "refresh": 2,
        "multi": True, "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}, "sort": 1,
    }


def panels(rows):
    """Grafana's panels, three in a line."""
    made, y, column = [], 0, 0
    for row in rows:
        if row[0] == "row":
            if column:
                y, column = y + HEIGHT, 0
            made.append({"id": len(made) + 1, "type": "row", "title": row[1], "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}, "panels": []})
            y += 1
            continue
        title, unit, targets = row
        made.append({
            "id": len(made) + 1, "type": "timeseries", "title": title, "datasource": {"type": "prometheus", "uid": "$datasource"},
            "gridPos": {"x": column * WIDTH, "y": y, "w": WIDTH, "h": HEIGHT},
            "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
            "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
            "targets": [{"refId": chr(ord("A") + n), "expr": query.replace("$pods", PODS), "legendFormat": legend}
                        for n, (query, legend) in enumerate(targets)],
        })
        column += 1
        if column == COLUMNS:
            y, column = y + HEIGHT, 0
    return made


def files():
    """(path, text) of every dashboard."""
    made = []
    for name, (title, lists, rows) in DASHBOARDS.items():
        dashboard = {
            "uid": f"waybill-{name}", "title": title, "tags": ["waybill"], "schemaVersion": 39, "editable": True, "refresh": "30s",
            "time": {"from": "now-1h", "to": "now"},
            "templating": {"list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                variable("namespace", f"label_values({lists}, namespace)"),
                variable("pod", f'label_values({lists}{{namespace=~"$namespace"}}, pod)'),
            ]},
            "panels": panels(rows),
        }
        made.append((FOLDER / f"{name}.json", json.dumps(dashboard, indent=1, ensure_ascii=False) + "\n"))
    return made


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    for path, text in files():
        path.write_text(text)
