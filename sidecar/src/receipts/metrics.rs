//! What the manager tells of itself.

use std::{fmt, sync::Arc};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{
        MetricType,
        counter::ConstCounter,
        gauge::ConstGauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

use super::{
    changer::ChangeError,
    core::{Counters, Dropped},
    shared::Shared,
    types::Stats,
};

/// What is measured as it happens; everything else is read from the core at each scrape.
pub(super) struct Metrics {
    batch_size: Histogram,
    lag: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            batch_size: Histogram::new(exponential_buckets(1.0, 2.0, 12)),
            lag: Histogram::new(exponential_buckets(0.001, 4.0, 9)),
        }
    }
}

impl Metrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "waybill_sidecar_receipts_batch_size",
            "Handles in one request to a broker",
            self.batch_size.clone(),
        );
        registry.register_with_unit(
            "waybill_sidecar_receipts_lag",
            "For how long the handle due longest had waited when a request was made",
            Unit::Seconds,
            self.lag.clone(),
        );
    }

    pub(super) fn batch(&self, size: usize, lag_ms: i64) {
        self.batch_size.observe(size as f64);
        self.lag.observe(lag_ms as f64 / 1_000.0);
    }
}

/// Reads the core at each scrape.
pub(super) struct Scrape(pub(super) Arc<Shared>);

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("receipts")
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (stats, counters, requests, lag_ms) =
            self.0.read(|core, now| (core.stats(), *core.counters(), core.requests() as u64, core.lag(now)));
        encode_gauges(&mut encoder, &stats, requests)?;
        let lag = ConstGauge::new(lag_ms as f64 / 1_000.0);
        let (name, help) = ("waybill_sidecar_receipts_oldest_due", "For how long the handle due longest has waited");
        lag.encode(encoder.encode_descriptor(name, help, Some(&Unit::Seconds), lag.metric_type())?)?;
        encode_counters(&mut encoder, &counters)
    }
}

fn encode_gauges(encoder: &mut DescriptorEncoder<'_>, stats: &Stats, requests: u64) -> Result<(), fmt::Error> {
    let gauges = [
        ("waybill_sidecar_receipts_held", "Handles held", stats.held),
        ("waybill_sidecar_receipts_kept", "Handles held for the whole lease, not renewed", stats.kept),
        ("waybill_sidecar_receipts_gave_up", "Handles whose renewal failed for good", stats.gave_up),
        ("waybill_sidecar_receipts_let_go", "Handles remembered only for late acks", stats.let_go),
        ("waybill_sidecar_receipts_returning", "Handles on their way back to the broker", stats.returning),
        ("waybill_sidecar_receipts_due", "Handles that are due and wait for a request", stats.due),
        ("waybill_sidecar_receipts_in_flight", "Handles in requests under way", stats.in_flight),
        ("waybill_sidecar_receipts_requests", "Requests under way", requests),
    ];
    for (name, help, value) in gauges {
        let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
        gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
    }
    Ok(())
}

fn encode_counters(encoder: &mut DescriptorEncoder<'_>, counters: &Counters) -> Result<(), fmt::Error> {
    let plain = [
        ("waybill_sidecar_receipts_registered", "Handles taken over", counters.registered),
        ("waybill_sidecar_receipts_refused", "Handles not taken over because a limit was reached", counters.refused),
        ("waybill_sidecar_receipts_renewed", "Leases extended", counters.renewed),
        (
            "waybill_sidecar_receipts_late",
            "Leases that ended before they were renewed",
            counters.dropped(Dropped::Late),
        ),
        ("waybill_sidecar_receipts_outlived", "Leases let go because they were held too long", counters.outlived),
        ("waybill_sidecar_receipts_stale", "Results that came too late to matter", counters.stale),
    ];
    for (name, help, value) in plain {
        let counter = ConstCounter::new(value);
        counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
    }
    let failed = ChangeError::ALL.map(|error| (error.name(), counters.failed(error)));
    encode_family(encoder, "waybill_sidecar_receipts_failed", "Leases not changed, by cause", "cause", &failed)?;
    let dropped = Dropped::ALL.map(|why| (why.name(), counters.dropped(why)));
    encode_family(encoder, "waybill_sidecar_receipts_dropped", "Handles not held any more, by cause", "cause", &dropped)
}

fn encode_family(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &'static str,
    values: &[(&'static str, u64)],
) -> Result<(), fmt::Error> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (value, count) in values {
        ConstCounter::new(*count).encode(family.encode_family(&[(label, *value)])?)?;
    }
    Ok(())
}
