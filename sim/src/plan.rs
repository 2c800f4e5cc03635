//! What a run is made of: drawn from its seed before it begins.

use crate::dice::Dice;

/// The consumer groups: of push consumers, and of simple ones.
pub const GROUPS: [&str; 2] = ["pushers", "simples"];
/// What the group's `consumeTimeoutMinute` of 1 comes to, in milliseconds.
pub const CONSUME_TIMEOUT_MS: i64 = 60_000;

/// The shape of a run. Durations in milliseconds, chances in thousandths.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Brokers.
    pub brokers: usize,
    /// Sidecars.
    pub sidecars: usize,
    /// Push consumers, whose leases the sidecar keeps.
    pub push: usize,
    /// Simple consumers, which keep their leases themselves.
    pub simple: usize,
    /// Messages to send.
    pub messages: usize,
    /// Queues of the topic on each broker.
    pub queues: i32,
    /// How long faults happen.
    pub chaos_ms: i64,
    /// Time between two faults, at most. 0: no faults at all.
    pub fault_every_ms: i64,
    /// Longest delay of a message between sidecar and broker, in each direction.
    pub delay_ms: i64,
    /// Chance that such a message is lost.
    pub loss: i64,
    /// Longest time a sync takes.
    pub sync_ms: i64,
    /// `clientGoneAfter` of the brokers.
    pub gone_after_ms: i64,
    /// `enableGrpcChannelReceiptHandleRenew`.
    pub renew: bool,
    /// `enableBatchAck` and `enableBatchChangeInvisibleTime`.
    pub batch: bool,
    /// `defaultInvisibleTimeMills`.
    pub lease_ms: i64,
    /// Longest work of a consumer on a message.
    pub work_ms: i64,
    /// Deliveries a message gets.
    pub attempts: i32,
    /// Groups consume in order, and messages are of so many message groups. 0: no order.
    pub message_groups: i64,
    /// Brokers give handles that change, as Apache's do, and watch over nobody.
    pub moving: bool,
    /// Time between two flips of the renewal switch or drains of sidecars, at most. 0: none.
    pub upkeep_every_ms: i64,
    /// Delayed messages and halves of transactions to send.
    pub promises: usize,
    /// Bytes that each message has more than it needs, so that a run goes over several segments of the log.
    pub padding: usize,
    /// Disks are slow now and then.
    pub slow_disks: bool,
}

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn of(dice: &mut Dice) -> Self {
        let calm = dice.chance(150);
        Self {
            brokers: usize::try_from(*dice.pick(&[1, 1, 2])).unwrap_or(1),
            sidecars: usize::try_from(dice.within(1..=3)).unwrap_or(1),
            push: usize::try_from(dice.within(1..=3)).unwrap_or(1),
            simple: usize::try_from(dice.within(1..=2)).unwrap_or(1),
            messages: usize::try_from(dice.within(10..=40)).unwrap_or(10),
            queues: i32::try_from(dice.within(1..=3)).unwrap_or(1),
            chaos_ms: dice.within(15_000..=45_000),
            fault_every_ms: if calm { 0 } else { dice.within(2_000..=12_000) },
            delay_ms: *dice.pick(&[0, 2, 20, 150]),
            loss: if calm { 0 } else { *dice.pick(&[0, 0, 10, 50]) },
            sync_ms: *dice.pick(&[0, 2, 10, 100]),
            gone_after_ms: *dice.pick(&[4_000, 8_000]),
            renew: dice.chance(700),
            batch: dice.chance(600),
            lease_ms: dice.within(6_000..=12_000),
            work_ms: *dice.pick(&[500, 5_000, 25_000]),
            attempts: i32::try_from(dice.within(3..=8)).unwrap_or(3),
            message_groups: *dice.pick(&[0, 0, 1, 4]),
            moving: dice.chance(250),
            upkeep_every_ms: *dice.pick(&[0, 6_000, 15_000]),
            promises: usize::try_from(dice.within(0..=16)).unwrap_or(0),
            padding: *dice.pick(&[0, 3_000, 3_000]),
            slow_disks: false,
        }
    }
}
