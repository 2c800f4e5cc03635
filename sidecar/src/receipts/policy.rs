//! The settings of the receipt manager, and what a client is promised at a pop.

use waybill_protocol::remoting::GroupOverrides;

use super::types::{ChannelKind, Mode};
use crate::config::Config;

/// Settings; all may change at run time. Durations in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// `renewAheadTimeMillis`: renew so long before the lease ends, but never before half of the lease is over.
    pub renew_ahead_ms: i64,
    /// `renewMaxTimeMillis`: so long after the receive, let go with the group's retry back-off.
    pub renew_max_time_ms: i64,
    /// `maxRenewRetryTimes`: after so many failed retries in a row stop renewing.
    pub max_renew_retry_times: u32,
    /// `invisibleTimeMillisWhenClear`: how soon a returned message becomes visible.
    pub clear_invisible_ms: i64,
    /// How long it is remembered that a client is gone: longer than any long poll that began before.
    pub remember_gone_ms: i64,
    /// How long the n-th renewal extends the lease; the last value counts for all further ones. An empty list means one
    /// minute.
    pub renew_steps_ms: Vec<i64>,
    /// `receiptHandleMaxNumPerClient`: most handles of one client.
    pub max_handles_per_client: u32,
    /// `receiptHandleMaxNum`: most handles of all clients together. At most [`MAX_HANDLES`].
    pub max_handles: u32,
    /// Most entries of one request to a broker (`batchChangeInvisibleTimeMaxNum`), at least 1.
    pub max_batch: usize,
    /// Most requests to one broker at the same time, at least 1.
    pub max_requests_per_broker: usize,
    /// How long one request may take before its entries count as failed by time-out. A guard: it must be longer than
    /// the time-outs of the backend itself, which knows what became of each entry.
    pub request_timeout_ms: i64,
}

/// Requests of the receipt manager to one broker at the same time, unless a policy says otherwise.
pub const MAX_REQUESTS_PER_BROKER: usize = 8;

/// `receiptHandleMaxNum`, unless the configuration says otherwise.
pub const DEFAULT_MAX_HANDLES: u32 = 1_200_000;

/// `receiptHandleMaxNumPerClient`, unless the configuration says otherwise.
pub const DEFAULT_MAX_HANDLES_PER_CLIENT: u32 = 100_000;

/// No sidecar can hold more handles than this.
pub const MAX_HANDLES: u32 = 1 << 24;

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;

impl Default for Policy {
    fn default() -> Self {
        Self {
            renew_ahead_ms: 10 * SECOND,
            renew_max_time_ms: 180 * MINUTE,
            max_renew_retry_times: 3,
            clear_invisible_ms: SECOND,
            remember_gone_ms: MINUTE,
            renew_steps_ms: [1, 3, 5, 10, 30, 60].map(|minutes| minutes * MINUTE).to_vec(),
            max_handles_per_client: DEFAULT_MAX_HANDLES_PER_CLIENT,
            max_handles: DEFAULT_MAX_HANDLES,
            max_batch: 1_024,
            max_requests_per_broker: MAX_REQUESTS_PER_BROKER,
            request_timeout_ms: 6 * SECOND,
        }
    }
}

/// What decides the promise at a pop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromiseSettings {
    /// `enableGrpcChannelReceiptHandleRenew`.
    pub grpc_renew: bool,
    /// The group's own value of the switch, which counts before the sidecar's (D9).
    pub group_renew: Option<bool>,
    /// `defaultInvisibleTimeMills`, or the group's own value.
    pub default_invisible_ms: i64,
    /// The group's `consumeTimeoutMinute`.
    pub consume_timeout_minutes: i64,
    /// `maxInvisibleTimeMills`: the longest lease that may be asked for.
    pub max_invisible_ms: i64,
}

impl PromiseSettings {
    /// What the sidecar's configuration and the group's own values come to. `consume_timeout_minutes` is the group's.
    #[must_use]
    pub fn of(config: &Config, group: &GroupOverrides, consume_timeout_minutes: i64) -> Self {
        Self {
            grpc_renew: config.enable_grpc_channel_receipt_handle_renew,
            group_renew: group.renew,
            default_invisible_ms: group.invisible_ms.unwrap_or(config.default_invisible_time_ms),
            consume_timeout_minutes,
            max_invisible_ms: config.max_invisible_time_ms,
        }
    }
}

/// The invisible duration for a client that leaves it to the group, of messages that this sidecar does not keep.
#[must_use]
pub fn lease_of_group(config: &Config, consume_timeout_minutes: i64) -> i64 {
    let longest = config.max_invisible_time_ms.max(1);
    let shortest = config.min_invisible_time_ms_for_recv.clamp(1, longest);
    consume_timeout_minutes.saturating_mul(MINUTE).clamp(shortest, longest)
}

/// What to ask the broker for when a client wants auto-renewal, and how the lease is kept afterwards.
///
/// Precedence: the kind of channel (remoting is always renewed), then the group's own switch, then the sidecar's.
#[must_use]
pub fn promise(kind: ChannelKind, settings: &PromiseSettings) -> (Mode, i64) {
    let renew = kind == ChannelKind::Remoting || settings.group_renew.unwrap_or(settings.grpc_renew);
    let longest = settings.max_invisible_ms.max(1);
    if renew {
        (Mode::Renew, settings.default_invisible_ms.clamp(1, longest))
    } else {
        (Mode::Keep, settings.consume_timeout_minutes.saturating_mul(MINUTE).clamp(1, longest))
    }
}
