//! What all measurements have in common.

use std::time::Duration;

use crate::address;
use crate::exit::Failure;
use crate::message::Endpoint;
use crate::quantity;

/// For what goes over gRPC.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) endpoint: Endpoint,
    #[command(flatten)]
    pub(crate) load: Load,
}

/// How much load, on what, and what is looked at meanwhile.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Load {
    /// The topic to use; on a server that does not create topics by itself, create it first
    #[arg(long, default_value = "waybill-bench")]
    pub(crate) topic: String,
    /// The consumer group to use
    #[arg(long, default_value = "waybill-bench")]
    pub(crate) group: String,
    /// Connections, each a client of its own
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) connections: u32,
    /// Calls that may be under way at once, over all connections
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) in_flight: u32,
    /// Bytes of a message's body
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    pub(crate) size: u32,
    /// How long to measure
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = quantity::duration)]
    pub(crate) duration: Duration,
    /// How long to run before measuring
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = quantity::duration)]
    pub(crate) warmup: Duration,
    /// Server processes whose CPU time and memory are measured too; separate several with commas
    #[arg(long = "pid", value_name = "PID", value_delimiter = ',')]
    pub(crate) pids: Vec<u32>,
    /// Admin ports whose counters are reported too: by how much each rose while it was measured. Separate several with commas
    #[arg(long = "admin", value_name = "HOST:PORT", value_delimiter = ',', value_parser = address::parse)]
    pub(crate) admins: Vec<String>,
}

impl Load {
    /// What types cannot check.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.duration.is_zero() {
            return Err(Failure::usage("--duration must be longer than nothing"));
        }
        if self.in_flight < self.connections {
            return Err(Failure::usage("--in-flight must be at least --connections: each connection has a call"));
        }
        for pid in &self.pids {
            waybill_ops::process::usage(*pid)
                .map_err(|error| Failure::usage(format!("--pid {pid} cannot be measured: {error}")))?;
        }
        Ok(())
    }
}
