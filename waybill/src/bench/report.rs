//! What a measurement found, for people and for programs.

use std::collections::BTreeMap;

use serde::Serialize;

use super::histogram::Histogram;
use super::load::Record;
use super::usage::{Process, Usage};

/// Names with units last; milliseconds for latencies, bytes for memory.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) scenario: &'static str,
    pub(crate) endpoint: String,
    pub(crate) messages: u64,
    /// Milliseconds since the epoch.
    pub(crate) began_ms: i64,
    pub(crate) seconds: f64,
    pub(crate) messages_per_second: f64,
    pub(crate) latencies_ms: BTreeMap<&'static str, Latency>,
    pub(crate) errors: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<Server>,
    pub(crate) client_cpu_seconds: f64,
    /// What only this scenario knows: messages lost, clients connected.
    pub(crate) more: BTreeMap<&'static str, u64>,
    /// By how much the counters of the admin ports rose, by name and labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) counters: BTreeMap<String, f64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) count: u64,
    pub(crate) mean: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

/// All measured server processes together.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Server {
    pub(crate) cpu_seconds: f64,
    pub(crate) cores: f64,
    /// None when too little CPU time passed to tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) messages_per_cpu_second: Option<f64>,
    pub(crate) resident_bytes_before: i64,
    pub(crate) resident_bytes_after: i64,
    pub(crate) processes: Vec<Process>,
}

impl Report {
    pub(crate) fn new(scenario: &'static str, endpoint: &str, record: &Record, seconds: f64, usage: &Usage) -> Self {
        let messages = record.messages;
        let server = (!usage.servers.is_empty()).then(|| Server::new(messages, seconds, usage));
        Self {
            scenario,
            endpoint: endpoint.to_owned(),
            messages,
            began_ms: usage.began_ms,
            seconds,
            messages_per_second: messages as f64 / seconds.max(f64::MIN_POSITIVE),
            latencies_ms: record.latencies.iter().map(|(what, histogram)| (*what, Latency::of(histogram))).collect(),
            errors: record.errors.clone(),
            server,
            client_cpu_seconds: usage.client_cpu_seconds,
            more: BTreeMap::new(),
            counters: usage.counters.clone(),
        }
    }

    pub(crate) fn text(&self) -> String {
        let mut out = format!(
            "{} at {}: {} messages in {:.1} s = {:.0}/s\n",
            self.scenario, self.endpoint, self.messages, self.seconds, self.messages_per_second
        );
        for (what, l) in &self.latencies_ms {
            out.push_str(&format!(
                "  {what:<12} p50 {:.2} ms, p90 {:.2}, p99 {:.2}, p99.9 {:.2}, max {:.2} ({} calls)\n",
                l.p50, l.p90, l.p99, l.p999, l.max, l.count
            ));
        }
        for (what, count) in &self.more {
            out.push_str(&format!("  {what:<12} {count}\n"));
        }
        for (name, rise) in &self.counters {
            out.push_str(&format!("  counter      {name}: {rise}\n"));
        }
        for (label, count) in &self.errors {
            out.push_str(&format!("  error        {label}: {count}\n"));
        }
        if let Some(server) = &self.server {
            let each = server.messages_per_cpu_second.map(|each| format!(", {each:.0} messages per CPU-second"));
            out.push_str(&format!(
                "  server       {:.2} CPU-seconds ({:.1} % of a core){}, {} MiB resident before, {} after\n",
                server.cpu_seconds,
                server.cores * 100.0,
                each.unwrap_or_default(),
                mib(server.resident_bytes_before),
                mib(server.resident_bytes_after)
            ));
            for p in server.processes.iter().filter(|_| server.processes.len() > 1) {
                out.push_str(&format!(
                    "    pid {:<8} {:.2} CPU-seconds, {} MiB resident before, {} after\n",
                    p.pid,
                    p.cpu_seconds,
                    mib(p.resident_bytes_before),
                    mib(p.resident_bytes_after)
                ));
            }
        }
        out.push_str(&format!("  this client  {:.2} CPU-seconds\n", self.client_cpu_seconds));
        out
    }
}

fn mib(bytes: i64) -> String {
    format!("{:.1}", bytes as f64 / (1024.0 * 1024.0))
}

impl Latency {
    fn of(histogram: &Histogram) -> Self {
        let ms = |share| histogram.quantile(share) as f64 / 1e3;
        Self {
            count: histogram.count(),
            mean: histogram.mean() / 1e3,
            p50: ms(0.5),
            p90: ms(0.9),
            p99: ms(0.99),
            p999: ms(0.999),
            max: histogram.max() as f64 / 1e3,
        }
    }
}

impl Server {
    fn new(messages: u64, seconds: f64, usage: &Usage) -> Self {
        /// Ten ticks of the kernel's CPU accounting: below that, a ratio is noise.
        const CPU_SECONDS_MIN: f64 = 0.1;
        let cpu_seconds: f64 = usage.servers.iter().map(|process| process.cpu_seconds).sum();
        Self {
            cpu_seconds,
            cores: cpu_seconds / seconds.max(f64::MIN_POSITIVE),
            messages_per_cpu_second: (cpu_seconds >= CPU_SECONDS_MIN && messages > 0)
                .then(|| messages as f64 / cpu_seconds),
            resident_bytes_before: usage.servers.iter().map(|process| process.resident_bytes_before).sum(),
            resident_bytes_after: usage.servers.iter().map(|process| process.resident_bytes_after).sum(),
            processes: usage.servers.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(cpu_seconds: f64) -> Usage {
        let process = Process { pid: 7, cpu_seconds, resident_bytes_before: 1 << 20, resident_bytes_after: 3 << 20 };
        Usage { servers: vec![process.clone(), process], client_cpu_seconds: 1.5, ..Usage::default() }
    }

    #[test]
    fn rates_and_shares() {
        let record = Record { messages: 3_000, ..Record::default() };
        let report = Report::new("send", "here:1", &record, 2.0, &usage(0.5));
        let server = report.server.as_ref().expect("measured");
        assert_eq!(report.messages_per_second, 1_500.0);
        assert_eq!((server.cpu_seconds, server.cores, server.messages_per_cpu_second), (1.0, 0.5, Some(3_000.0)));
        assert_eq!((server.resident_bytes_before, server.resident_bytes_after), (2 << 20, 6 << 20));
        let text = report.text();
        assert!(text.starts_with("send at here:1: 3000 messages in 2.0 s = 1500/s\n"), "{text}");
        assert!(text.contains("50.0 % of a core"), "{text}");
    }

    #[test]
    fn too_little_cpu_time_gives_no_ratio() {
        let record = Record { messages: 3_000, ..Record::default() };
        let report = Report::new("idle", "here:1", &record, 2.0, &usage(0.04));
        assert_eq!(report.server.and_then(|server| server.messages_per_cpu_second), None);
    }
}
