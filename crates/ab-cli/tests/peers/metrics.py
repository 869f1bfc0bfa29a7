"""Reads the metrics of a server with the parser of Prometheus' own client library."""

import sys
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

url, token = sys.argv[1:3]
request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
with urllib.request.urlopen(request) as answer:
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    text = answer.read().decode()

families = {family.name: family for family in text_string_to_metric_families(text)}
for name, family in families.items():
    assert family.documentation, f"{name} has no help"
    assert family.type in ("counter", "gauge", "histogram"), f"{name} is {family.type}"
    labels = [tuple(sorted(sample.labels.items())) + (sample.name,) for sample in family.samples]
    assert len(labels) == len(set(labels)), f"{name} has a sample twice"

durations = families["agent_backend_session_duration_seconds"]
for phase in ("queue", "provision", "run", "delivery", "session"):
    of_phase = [s for s in durations.samples if s.labels["phase"] == phase]
    buckets = [(float(s.labels["le"]), s.value) for s in of_phase if s.name.endswith("_bucket")]
    assert buckets == sorted(buckets) and buckets[-1][0] == float("inf"), buckets
    counts = [value for _, value in buckets]
    assert counts == sorted(counts), counts
    count = next(s.value for s in of_phase if s.name.endswith("_count"))
    assert count == counts[-1], of_phase

ended = families["agent_backend_sessions_ended"]


def count_ended(status):
    return int(sum(s.value for s in ended.samples if s.labels["status"] == status))


def gauge(name, **labels):
    return int(next(s.value for s in families[name].samples if s.labels == labels))


running = gauge("agent_backend_sessions", status="running")
queued = gauge("agent_backend_prompts_queued")
pending = gauge("agent_backend_approvals_pending")
print(
    f"{count_ended('completed')} completed, {count_ended('cancelled')} cancelled, "
    f"{running} running, {queued} prompts queued, {pending} approvals pending"
)
if len(sys.argv) > 3:
    occupied = gauge("agent_backend_disk_bytes", what="workspaces")
    assert occupied > 0, "the workspace of a session occupies nothing"
    assert gauge("agent_backend_disk_free_bytes") > 0, "the disk is full"
