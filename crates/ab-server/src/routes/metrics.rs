//! `GET /metrics`: counts and sizes in the text format of Prometheus.
//!
//! Labels never contain values that a caller or an agent chooses, such as names of agents,
//! repositories or sessions.

use std::fmt::{Display, Write};

use ab_api::SessionStatus;
use ab_control::{ControlPlane, DURATION_BUCKETS, SessionMetrics, SessionSpanKind};
use ab_store::{StoreError, StoreGauges};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Access;
use crate::app::HttpApp;
use crate::http_metrics::{HttpCounts, REQUEST_BUCKETS};
use crate::problem::{Problem, ProblemKind, Refusal};

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Show metrics of the server in the text format of Prometheus
///
/// The metrics cover sessions by status, durations of their phases, the queue, open approvals, disk
/// use, and requests by route. Counters start at 0 when the process starts.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "operation",
    responses(
        (status = OK, description = "One sample in each line", body = String, content_type = "text/plain"),
        (status = INTERNAL_SERVER_ERROR, description = "The store failed", body = Refusal)
    )
)]
pub(crate) async fn show(State(app): State<HttpApp>) -> Result<Response, Problem> {
    let mut text = Exposition::default();
    text.family("agent_backend_build_info", "gauge", "The version of the program.");
    text.sample("agent_backend_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    if let Ok(surface) = app.control() {
        let gauges = surface.control.store().gauges().await.map_err(failed)?;
        let size = surface.control.store().database_size().await.map_err(failed)?;
        sessions(&mut text, &gauges, &surface.control.session_metrics());
        text.gauge(
            "agent_backend_prompts_queued",
            "Prompts that wait in queues.",
            gauges.queued_prompts,
        );
        text.gauge(
            "agent_backend_approvals_pending",
            "Approvals that wait for a decision.",
            gauges.pending_approvals,
        );
        text.family("agent_backend_events_total", "counter", "Events that were ever stored.");
        text.sample("agent_backend_events_total", &[], gauges.events);
        text.gauge(
            "agent_backend_event_readers",
            "Readers of the event log, with the one that counts for these metrics.",
            surface.control.store().event_reader_count(),
        );
        text.gauge("agent_backend_database_bytes", "Size of the database.", size.bytes);
        text.gauge(
            "agent_backend_database_free_bytes",
            "Part of the database that is not used.",
            size.free_bytes,
        );
        disk(&mut text, &surface.control);
    }
    http(&mut text, &app.http_metrics().counts());
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text.0).into_response())
}

pub(super) fn routes() -> OpenApiRouter<HttpApp> {
    OpenApiRouter::default().routes(Access::Admin.to(routes!(show)))
}

fn sessions(text: &mut Exposition, gauges: &StoreGauges, metrics: &SessionMetrics) {
    text.family("agent_backend_sessions", "gauge", "Sessions that are stored, by status.");
    for (status, count) in &gauges.sessions {
        text.sample("agent_backend_sessions", &[("status", status.as_str())], count);
    }
    let name = "agent_backend_sessions_ended_total";
    text.family(name, "counter", "Sessions that ended, by their final status.");
    for status in SessionStatus::ALL.into_iter().filter(|status| status.is_terminal()) {
        let count = metrics.ended.get(&status).copied().unwrap_or_default();
        text.sample(name, &[("status", status.as_str())], count);
    }
    let name = "agent_backend_session_duration_seconds";
    text.family(name, "histogram", "Durations of the phases of sessions that ended.");
    for kind in SessionSpanKind::ALL {
        let histogram = metrics.durations.get(&kind).copied().unwrap_or_default();
        let label = ("phase", kind.as_str());
        let totals = (histogram.count, histogram.sum);
        text.histogram(name, Some(label), &DURATION_BUCKETS, &histogram.buckets, totals);
    }
    let name = "agent_backend_traces_dropped_total";
    text.family(name, "counter", "Traces that were not sent because the queue was full.");
    text.sample(name, &[], metrics.dropped_traces);
}

/// The sizes that the housekeeper counted last. They may be up to ten minutes old.
fn disk(text: &mut Exposition, control: &ControlPlane) {
    let Some(storage) = control.storage_use() else { return };
    let name = "agent_backend_disk_bytes";
    text.family(name, "gauge", "Space that is occupied, as it was counted last.");
    text.sample(name, &[("what", "workspaces")], storage.workspaces_bytes);
    text.sample(name, &[("what", "caches")], storage.caches_bytes);
    if let Some(limit) = storage.limit_bytes {
        let help = "Limit on workspaces and caches together.";
        text.gauge("agent_backend_disk_limit_bytes", help, limit);
    }
    if let Some(free) = control.executor().free_space() {
        text.gauge("agent_backend_disk_free_bytes", "Free space for workspaces.", free);
    }
}

fn http(text: &mut Exposition, counts: &HttpCounts) {
    let name = "agent_backend_http_requests_total";
    text.family(name, "counter", "Requests that were answered, by route, method and status.");
    for ((route, method, status), count) in &counts.requests {
        let status = status.to_string();
        text.sample(name, &[("route", route), ("method", method), ("status", &status)], count);
    }
    let name = "agent_backend_http_request_duration_seconds";
    text.family(name, "histogram", "Time until the head of the response. Streams go on after it.");
    let totals = (counts.count, counts.sum);
    text.histogram(name, None, &REQUEST_BUCKETS, &counts.buckets, totals);
}

fn failed(error: StoreError) -> Problem {
    tracing::error!(%error, "the store failed");
    Problem::new(ProblemKind::Internal, "the store failed; the log of the server says why")
}

/// The text of a response.
#[derive(Debug, Default)]
struct Exposition(String);

impl Exposition {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// Adds a metric family with a single sample.
    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            self.0.push(if index == 0 { '{' } else { ',' });
            let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{label}=\"{escaped}\"");
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }

    /// Adds the samples of a histogram. `totals` are the count and the sum.
    fn histogram(
        &mut self,
        name: &str,
        label: Option<(&str, &str)>,
        bounds: &[f64],
        buckets: &[u64],
        totals: (u64, f64),
    ) {
        let (count, sum) = totals;
        let mut up_to = 0;
        for (bound, bucket) in bounds.iter().zip(buckets) {
            up_to += bucket;
            let bound = bound.to_string();
            let labels: Vec<_> = label.into_iter().chain([("le", bound.as_str())]).collect();
            self.sample(&format!("{name}_bucket"), &labels, up_to);
        }
        let labels: Vec<_> = label.into_iter().chain([("le", "+Inf")]).collect();
        self.sample(&format!("{name}_bucket"), &labels, count);
        let labels: Vec<_> = label.into_iter().collect();
        self.sample(&format!("{name}_sum"), &labels, sum);
        self.sample(&format!("{name}_count"), &labels, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_escaped_and_buckets_accumulate() {
        let mut text = Exposition::default();
        text.family("h", "histogram", "Help.");
        text.histogram("h", Some(("p", "a\"b\\c\nd")), &[0.5, 1.0], &[2, 3], (6, 1.5));
        let label = "p=\"a\\\"b\\\\c\\nd\"";
        let expect = format!(
            "# HELP h Help.\n# TYPE h histogram\nh_bucket{{{label},le=\"0.5\"}} 2\n\
             h_bucket{{{label},le=\"1\"}} 5\nh_bucket{{{label},le=\"+Inf\"}} 6\n\
             h_sum{{{label}}} 1.5\nh_count{{{label}}} 6\n"
        );
        assert_eq!(text.0, expect);
    }
}
